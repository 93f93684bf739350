"""No thread of the runtime ever takes the interpreter's lock, and none waits inside the runtime with it held."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from pathlib import Path
from typing import Any

import pytest

import bireme
from bireme import _native
from bireme.context import Context


@bireme.remote
def square(n: int) -> int:
    print("squares", n)
    return n * n


@bireme.remote
class Plain:
    def add(self, n: int) -> int:
        return n + 1

    def counts(self) -> tuple[int, int, int]:
        return _native.lock_counts()


@bireme.remote
class Async:
    async def add(self, n: int) -> int:
        return await square.remote(n)

    async def stream(self, n: int) -> Any:
        for k in range(n):
            yield k

    async def counts(self) -> tuple[int, int, int]:
        return _native.lock_counts()


def test_a_busy_program_never_takes_the_lock_on_a_thread_of_the_runtime(runtime: Context) -> None:
    plain, other = Plain.remote(), Async.remote()

    def work() -> None:
        assert bireme.get([plain.add.remote(n) for n in range(100)]) == list(range(1, 101))

    async def loop() -> list[int]:
        return await asyncio.gather(*[other.add.remote(n) for n in range(50)])

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    futures = [square.remote(n).future() for n in range(50)]
    concurrent.futures.wait(futures)
    assert asyncio.run(loop()) == [n * n for n in range(50)]
    assert [bireme.get(ref) for ref in other.stream.remote(20)] == list(range(20))
    big = [bireme.put(bytes(200_000)) for _ in range(20)]
    bireme.wait(big, num_returns=20)
    del big
    for thread in threads:
        thread.join()
    for entries, trespasses, _ in (_native.lock_counts(), *bireme.get([plain.counts.remote(), other.counts.remote()])):
        assert trespasses == 0
        assert entries >= 0
    assert bireme.get(plain.counts.remote())[0] > 0


@bireme.remote
class Yields:
    async def stream(self, n: int) -> Any:
        for _ in range(n):
            yield bytes(100_000)

    async def never(self) -> None:
        await asyncio.Event().wait()


def test_large_items_of_an_async_generator_come_while_other_calls_are_cancelled(runtime: Context) -> None:
    # Each cancellation has the thread that reads for the actor ask for the lock, which the loop holds while it yields.
    yields = Yields.remote()
    total = 0
    for item in yields.stream.remote(1500):
        waiting = yields.never.remote()
        total += len(bireme.get(item))
        bireme.cancel(waiting)
    assert total == 1500 * 100_000


@bireme.remote(max_retries=1)
def submits_and_dies(marker: str) -> tuple[int, int]:
    """The second run asks the node for each of its tasks and objects whether they exist."""
    before = _native.lock_counts()[2]
    made = [bireme.put(n) for n in range(20)] + [square.remote(n) for n in range(20)]
    late = _native.lock_counts()[2] - before
    total = sum(bireme.get(made))
    try:
        open(marker, "x").close()
    except FileExistsError:
        return total, late
    os._exit(1)


def test_a_repeated_task_asks_the_node_outside_of_the_lock(runtime: Context, tmp_path: Path) -> None:
    # The answer of an idle node may come before anybody waits for it.
    for run in range(100):
        total, late = bireme.get(submits_and_dies.remote(str(tmp_path / f"first run {run}")))
        assert total == sum(range(20)) + sum(n * n for n in range(20))
        if late > 0:
            return
    pytest.fail("no question waited, or some waited with the lock held")
