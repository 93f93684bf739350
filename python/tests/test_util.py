"""`bireme.util` with a running engine: ActorPool, Queue, completion order, serializers."""

from __future__ import annotations

import asyncio
import queue as standard_queue
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import bireme
from bireme import exceptions
from bireme.util import (
    ActorPool,
    Queue,
    as_completed,
    inspect_serializability,
    list_named_actors,
    map_unordered,
)
from bireme.util.queue import Empty, Full


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    bireme.init(num_cpus=4)
    yield
    bireme.shutdown()


@bireme.remote(num_cpus=0)
class Gate:
    """Lets tests hold a task until they say so: no sleeps."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()

    async def open(self) -> None:
        self.opened.set()

    async def pass_through(self, value: Any) -> Any:
        await self.opened.wait()
        return value


@bireme.remote(num_cpus=0)
class Doubler:
    def double(self, value: Any) -> Any:
        return 2 * value

    def fail(self, value: Any) -> Any:
        raise ValueError(f"no {value}")

    def through(self, gate: Any, value: Any) -> Any:
        return bireme.get(gate.pass_through.remote(value))


@bireme.remote
def square(x: int) -> int:
    return x * x


@bireme.remote
def fail_on(x: int, bad: int) -> int:
    if x == bad:
        raise KeyError(x)
    return x


@bireme.remote(num_cpus=0)
def through(gate: Any, value: Any) -> Any:
    return bireme.get(gate.pass_through.remote(value))


def double(actor: Any, value: Any) -> Any:
    return actor.double.remote(value)


def pool_of(count: int) -> ActorPool:
    return ActorPool([Doubler.remote() for _ in range(count)])


class TestActorPool:
    def test_map_gives_results_in_order(self) -> None:
        assert list(pool_of(2).map(double, range(10))) == [2 * n for n in range(10)]

    def test_map_unordered_gives_all_results(self) -> None:
        assert sorted(pool_of(3).map_unordered(double, range(10))) == [2 * n for n in range(10)]

    def test_map_takes_an_iterator_and_an_empty_one(self) -> None:
        pool = pool_of(2)
        assert list(pool.map(double, iter([1, 2]))) == [2, 4]
        assert list(pool.map(double, [])) == []

    def test_submit_and_get_next_keep_the_order_of_submission(self) -> None:
        pool = pool_of(2)
        for n in range(5):
            pool.submit(double, n)
        assert pool.has_next() and not pool.has_free()
        assert [pool.get_next() for _ in range(5)] == [0, 2, 4, 6, 8]
        assert not pool.has_next() and pool.has_free()

    def test_get_next_unordered_gives_what_is_ready_first(self) -> None:
        pool, gate = pool_of(2), Gate.remote()
        pool.submit(lambda actor, value: actor.through.remote(gate, value), "held")
        pool.submit(double, 4)
        assert pool.get_next_unordered() == 8
        bireme.get(gate.open.remote())
        assert pool.get_next_unordered() == "held"

    def test_get_next_without_a_submission_is_stop_iteration(self) -> None:
        with pytest.raises(StopIteration):
            pool_of(1).get_next()
        with pytest.raises(StopIteration):
            pool_of(1).get_next_unordered()

    def test_a_timeout_leaves_the_result_due(self) -> None:
        pool, gate = pool_of(1), Gate.remote()
        pool.submit(lambda actor, value: actor.through.remote(gate, value), 1)
        with pytest.raises(TimeoutError):
            pool.get_next(timeout=0.01)
        with pytest.raises(TimeoutError):
            pool.get_next_unordered(timeout=0.01)
        bireme.get(gate.open.remote())
        assert pool.get_next(timeout=60) == 1

    def test_an_ignored_timeout_drops_the_result(self) -> None:
        pool, gate = pool_of(1), Gate.remote()
        pool.submit(lambda actor, value: actor.through.remote(gate, value), 1)
        with pytest.raises(TimeoutError, match="ignored"):
            pool.get_next(timeout=0.01, ignore_if_timedout=True)
        assert not pool.has_next() and pool.has_free()
        bireme.get(gate.open.remote())

    def test_map_forgets_what_was_submitted_before(self) -> None:
        pool = pool_of(2)
        for n in range(5):
            pool.submit(double, n)
        assert list(pool.map(double, [10, 11])) == [20, 22]

    def test_an_error_is_raised_and_the_actor_stays(self) -> None:
        pool = pool_of(1)
        pool.submit(lambda actor, value: actor.fail.remote(value), 3)
        pool.submit(double, 4)
        with pytest.raises(ValueError, match="no 3"):
            pool.get_next()
        assert pool.get_next() == 8

    def test_a_dead_actor_leaves_the_pool(self) -> None:
        actors = [Doubler.remote(), Doubler.remote()]
        bireme.get([actor.double.remote(1) for actor in actors])
        pool = ActorPool(actors)
        bireme.kill(actors[1])
        pool.submit(double, 1)
        with pytest.raises(exceptions.RayActorError):
            pool.get_next()
        for n in range(3):
            pool.submit(double, n)
        assert [pool.get_next() for _ in range(3)] == [0, 2, 4]

    def test_push_and_pop_idle(self) -> None:
        one, two = Doubler.remote(), Doubler.remote()
        pool = ActorPool([one])
        with pytest.raises(ValueError):
            pool.push(one)
        pool.submit(double, 1)
        assert pool.pop_idle() is None
        with pytest.raises(ValueError):
            pool.push(one)
        pool.submit(double, 2)
        pool.push(two)
        assert (pool.get_next(), pool.get_next()) == (2, 4)
        assert {pool.pop_idle() is not None, pool.pop_idle() is not None} == {True}
        assert pool.pop_idle() is None


class TestQueue:
    def test_items_come_out_in_order(self) -> None:
        queue = Queue()
        for n in range(5):
            queue.put(n)
        assert (queue.qsize(), queue.size(), len(queue), queue.empty()) == (5, 5, 5, False)
        assert [queue.get() for _ in range(5)] == list(range(5))
        assert queue.empty()

    def test_an_empty_and_a_full_queue_refuse(self) -> None:
        queue = Queue(maxsize=1)
        for attempt in (queue.get_nowait, lambda: queue.get(block=False), lambda: queue.get(timeout=0.01)):
            with pytest.raises(Empty):
                attempt()
        queue.put(1)
        assert queue.full()
        for refused in (
            lambda: queue.put_nowait(2),
            lambda: queue.put(2, block=False),
            lambda: queue.put(2, timeout=0.01),
        ):
            with pytest.raises(Full):
                refused()
        assert queue.get(timeout=0) == 1

    def test_errors_are_those_of_the_standard_library(self) -> None:
        assert issubclass(Empty, standard_queue.Empty) and issubclass(Full, standard_queue.Full)
        with pytest.raises(standard_queue.Empty):
            Queue().get_nowait()

    def test_a_negative_timeout_is_a_mistake(self) -> None:
        queue = Queue()
        with pytest.raises(ValueError, match="non-negative"):
            queue.get(timeout=-1)
        with pytest.raises(ValueError, match="non-negative"):
            queue.put(1, timeout=-1)

    def test_batches_go_in_and_out_as_a_whole(self) -> None:
        queue = Queue(maxsize=3)
        queue.put_nowait_batch(iter([1, 2]))
        with pytest.raises(Full):
            queue.put_nowait_batch([3, 4])
        assert queue.qsize() == 2
        with pytest.raises(Empty):
            queue.get_nowait_batch(3)
        assert queue.get_nowait_batch(2) == [1, 2] and queue.get_nowait_batch(0) == []
        with pytest.raises(TypeError):
            queue.put_nowait_batch(3)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            queue.get_nowait_batch("3")  # type: ignore[arg-type]
        with pytest.raises(ValueError):
            queue.get_nowait_batch(-1)

    def test_a_waiting_get_is_woken_by_a_put_of_a_task(self) -> None:
        queue = Queue()

        @bireme.remote(num_cpus=0)
        def produce(target: Any) -> None:
            for n in range(3):
                target.put(n)

        done = produce.remote(queue)
        assert [queue.get(timeout=60) for _ in range(3)] == [0, 1, 2]
        bireme.get(done)

    def test_a_waiting_put_is_woken_by_a_get(self) -> None:
        queue = Queue(maxsize=1)
        queue.put("first")
        refs = [queue.actor.put.remote("second")]
        assert queue.get() == "first"
        bireme.get(refs)
        assert queue.get() == "second"

    def test_async_code_uses_it_too(self) -> None:
        queue = Queue(maxsize=2)

        async def talk() -> list[Any]:
            await queue.put_async(1)
            await queue.put_async(2, block=False)
            with pytest.raises(Full):
                await queue.put_async(3, block=False)
            with pytest.raises(Full):
                await queue.put_async(3, timeout=0.01)
            got = [await queue.get_async(), await queue.get_async(block=False)]
            with pytest.raises(Empty):
                await queue.get_async(timeout=0.01)
            return got

        assert asyncio.run(talk()) == [1, 2]

    @pytest.mark.parametrize("force", [False, True])
    def test_shutdown_ends_the_actor(self, force: bool) -> None:
        queue = Queue(actor_options={"num_cpus": 0})
        queue.put(1)
        actor = queue.actor
        queue.shutdown(force=force)
        queue.shutdown()
        with pytest.raises(exceptions.RayActorError):
            bireme.get(actor.qsize.remote())


class TestCompletion:
    def test_as_completed_gives_everything_once(self) -> None:
        for chunk_size in (1, 3, 100):
            assert sorted(as_completed([square.remote(n) for n in range(12)], chunk_size=chunk_size)) == [
                n * n for n in range(12)
            ]
        assert list(as_completed([])) == []

    def test_what_is_ready_is_not_held_back_by_what_is_not(self) -> None:
        gate = Gate.remote()
        refs = [through.remote(gate, "held"), square.remote(3)]
        results = as_completed(refs)
        assert next(results) == 9
        bireme.get(gate.open.remote())
        assert list(results) == ["held"]

    def test_refs_are_given_when_asked_for(self) -> None:
        refs = [square.remote(n) for n in range(4)]
        assert set(as_completed(refs, yield_obj_refs=True)) == set(refs)

    def test_nothing_in_time_is_an_error(self) -> None:
        gate = Gate.remote()
        with pytest.raises(TimeoutError):
            list(as_completed([through.remote(gate, 1)], timeout=0.01))
        bireme.get(gate.open.remote())

    def test_map_unordered_keeps_so_many_in_flight(self) -> None:
        taken: list[int] = []

        def items() -> Iterator[int]:
            for n in range(50):
                taken.append(n)
                yield n

        results = map_unordered(square, items(), backpressure_size=4)
        assert taken == []
        first = next(results)
        assert len(taken) == 4
        assert sorted([first, *results]) == [n * n for n in range(50)]
        assert sorted(map_unordered(square, range(5), backpressure_size=None)) == [0, 1, 4, 9, 16]

    def test_map_unordered_takes_a_method_of_an_actor(self) -> None:
        actor = Doubler.remote()
        assert sorted(map_unordered(actor.double, [1, 2, 3])) == [2, 4, 6]

    def test_errors_are_raised_in_the_loop(self) -> None:
        with pytest.raises(ValueError, match="no 1"):
            list(map_unordered(Doubler.remote().fail, [1]))
        with pytest.raises(KeyError):
            list(as_completed([fail_on.remote(n, 2) for n in range(4)]))

    def test_mistakes_raise_at_the_call(self) -> None:
        with pytest.raises(ValueError, match="chunk_size"):
            as_completed([], chunk_size=0)
        with pytest.raises(ValueError, match="backpressure_size"):
            map_unordered(square, [], backpressure_size=0)
        with pytest.raises(TypeError, match="remote"):
            map_unordered(len, [])


class TestSerialization:
    def test_named_actors_are_listed(self) -> None:
        actor = Doubler.options(name="listed").remote()
        bireme.get(actor.double.remote(1))
        assert "listed" in list_named_actors()
        assert any(entry["name"] == "listed" for entry in list_named_actors(all_namespaces=True))

    def test_a_registered_class_travels(self) -> None:
        from bireme.util import deregister_serializer, register_serializer

        class Guarded:
            def __init__(self, value: int) -> None:
                self.value, self.lock = value, threading.Lock()

        ok, failures = inspect_serializability(Guarded(1), name="guarded")
        assert not ok and failures
        register_serializer(Guarded, serializer=lambda guarded: guarded.value, deserializer=Guarded)
        try:

            @bireme.remote
            def read(guarded: Any) -> int:
                return int(guarded.value)

            assert bireme.get(read.remote(Guarded(5))) == 5
        finally:
            deregister_serializer(Guarded)
        with pytest.raises(TypeError):
            bireme.put(Guarded(1))

    def test_mistakes_are_named(self) -> None:
        from bireme.util import register_serializer

        with pytest.raises(TypeError, match="class"):
            register_serializer(3, serializer=int, deserializer=int)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="deserializer"):
            register_serializer(int, serializer=int, deserializer=3)  # type: ignore[arg-type]
