"""Actors whose calls run on several threads."""

from __future__ import annotations

import os
import threading

import pytest
from conftest import await_condition

import bireme
from bireme import exceptions
from bireme.context import Context


@bireme.remote
class Threads:
    def __init__(self, parties: int) -> None:
        self.barrier = threading.Barrier(parties)
        self.lock = threading.Lock()
        self.inside = self.most = 0
        self.gate = threading.Event()
        self.interrupted = 0

    def meet(self) -> int:
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        self.barrier.wait()
        with self.lock:
            self.inside -= 1
        return threading.get_ident()

    def most_at_once(self) -> int:
        return self.most

    def who(self) -> tuple[str | None, str | None]:
        context = bireme.get_runtime_context()
        self.barrier.wait()
        return context.get_task_id(), context.get_actor_id()

    def fail(self) -> None:
        raise LookupError(str(threading.get_ident()))

    def block(self) -> None:
        with self.lock:
            self.inside += 1
        try:
            while not self.gate.wait(0.01):
                pass
        except KeyboardInterrupt:
            self.interrupted += 1
            raise

    def state(self) -> tuple[int, int]:
        return self.inside, self.interrupted

    def open(self) -> None:
        self.gate.set()

    def pid(self) -> int:
        return os.getpid()


def test_calls_really_overlap(runtime: Context) -> None:
    threads = Threads.options(max_concurrency=4).remote(4)
    assert len(set(bireme.get([threads.meet.remote() for _ in range(4)]))) == 4


def test_no_more_than_max_concurrency_run_at_once(runtime: Context) -> None:
    threads = Threads.options(max_concurrency=3).remote(3)
    bireme.get([threads.meet.remote() for _ in range(12)])
    assert bireme.get(threads.most_at_once.remote()) == 3


def test_one_thread_is_the_default(runtime: Context) -> None:
    threads = Threads.remote(1)
    assert len(set(bireme.get([threads.meet.remote() for _ in range(5)]))) == 1


def test_each_thread_knows_its_own_call(runtime: Context) -> None:
    threads = Threads.options(max_concurrency=2).remote(2)
    one, other = bireme.get([threads.who.remote(), threads.who.remote()])
    assert one[0] != other[0] and None not in (one[0], other[0])
    assert one[1] == other[1] == threads._actor_id


def test_an_exception_in_one_thread_leaves_the_others_alone(runtime: Context) -> None:
    threads = Threads.options(max_concurrency=2).remote(2)
    with pytest.raises(LookupError):
        bireme.get(threads.fail.remote())
    assert len(set(bireme.get([threads.meet.remote(), threads.meet.remote()]))) == 2


def test_cancel_interrupts_only_its_own_thread(runtime: Context) -> None:
    threads = Threads.options(max_concurrency=3).remote(1)
    first, second = threads.block.remote(), threads.block.remote()
    await_condition(lambda: bireme.get(threads.state.remote())[0] == 2, "two calls that block")
    bireme.cancel(first)
    with pytest.raises(exceptions.TaskCancelledError):
        bireme.get(first)
    await_condition(lambda: bireme.get(threads.state.remote())[1] == 1, "the interrupt of one call")
    bireme.get(threads.open.remote())
    bireme.get(second)


def test_threads_call_back_into_the_runtime(runtime: Context) -> None:
    @bireme.remote
    def square(n: int) -> int:
        return n * n

    @bireme.remote(max_concurrency=4)
    class Squares:
        def sum(self, n: int) -> int:
            return sum(bireme.get([square.remote(k) for k in range(n)]))

    squares = Squares.remote()
    assert bireme.get([squares.sum.remote(4) for _ in range(8)]) == [14] * 8
