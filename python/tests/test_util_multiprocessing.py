"""`bireme.util.multiprocessing.Pool` gives the answers of `multiprocessing.Pool`."""

from __future__ import annotations

import gc
import multiprocessing
import multiprocessing.pool
import os
import pickle
import queue
import threading
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import pytest

import bireme
from bireme.util.multiprocessing import AsyncResult, Pool

PATIENCE_S = 60


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    bireme.init(num_cpus=2)
    yield
    bireme.shutdown()


@pytest.fixture
def their_pool() -> Iterator[Callable[[int], multiprocessing.pool.Pool]]:
    """Makes pools of the standard library, and ends the process that it keeps for them."""
    yield multiprocessing.get_context("spawn").Pool
    gc.collect()
    resource_tracker._resource_tracker._stop()  # type: ignore[attr-defined]


class OwnError(Exception):
    def __init__(self, number: int, text: str) -> None:
        super().__init__(number, text)
        self.number = number


_base = 0


def set_base(base: int) -> None:
    global _base
    _base = base


def add_base(x: int) -> int:
    return _base + x


def inverse(x: int) -> float:
    return 1 / x


def fail(x: int) -> None:
    raise OwnError(x, "no")


def power(x: int, y: int = 2) -> int:
    return x**y


def broken_items() -> Iterator[int]:
    yield 1
    yield 2
    raise OwnError(3, "the iterable ends")


def outcome(call: Callable[[], Any]) -> Any:
    """The answer of a call, or the exception as type and arguments."""
    try:
        return call()
    except Exception as error:
        return type(error), error.args


def take(iterator: Iterator[Any]) -> list[Any]:
    """What an iterator gives, exceptions among it."""
    taken: list[Any] = []
    while len(taken) < 100:
        try:
            taken.append(next(iterator))
        except StopIteration:
            return taken
        except Exception as error:
            taken.append((type(error), error.args))
    raise AssertionError("the iterator has no end")


CALLS: dict[str, Callable[[Any], Any]] = {
    "apply": lambda pool: pool.apply(power, (3,), {"y": 3}),
    "apply without arguments": lambda pool: pool.apply(os.getcwd),
    "apply that raises": lambda pool: pool.apply(fail, (7,)),
    "apply_async": lambda pool: pool.apply_async(power, (3, 4)).get(PATIENCE_S),
    "map": lambda pool: pool.map(power, range(17)),
    "map of a generator": lambda pool: pool.map(power, (x for x in range(5))),
    "map of nothing": lambda pool: pool.map(power, []),
    "map in chunks": lambda pool: pool.map(power, range(10), chunksize=3),
    "map that raises": lambda pool: pool.map(inverse, [1, 2, 0, 4], chunksize=2),
    "map of what is no iterable": lambda pool: pool.map(power, 3)[0],
    "map_async": lambda pool: pool.map_async(power, [1, 2]).get(PATIENCE_S),
    "starmap": lambda pool: pool.starmap(power, [(2, 3), (3, 2), (4,)]),
    "starmap in chunks": lambda pool: pool.starmap(power, [(2, 3), (3, 2), (4,)], chunksize=2),
    "starmap_async": lambda pool: pool.starmap_async(power, [(2, 5)]).get(PATIENCE_S),
    "imap": lambda pool: list(pool.imap(power, range(9))),
    "imap in chunks": lambda pool: list(pool.imap(power, range(9), chunksize=4)),
    "imap of nothing": lambda pool: list(pool.imap(power, [])),
    "imap that raises goes on": lambda pool: take(pool.imap(inverse, [1, 0, 2])),
    "imap of an iterable that raises": lambda pool: take(pool.imap(power, broken_items())),
    "imap_unordered": lambda pool: sorted(pool.imap_unordered(power, range(9))),
    "imap_unordered in chunks": lambda pool: sorted(pool.imap_unordered(power, range(9), chunksize=2)),
    "a wrong chunksize": lambda pool: pool.imap(power, [1], chunksize=0),
    "successful": lambda pool: settled(pool.apply_async(power, (2,))).successful(),
    "not successful": lambda pool: settled(pool.apply_async(fail, (2,))).successful(),
    "pickled": lambda pool: pickle.dumps(pool),
    "join while it runs": lambda pool: pool.join(),
}


def settled(result: Any) -> Any:
    result.wait(PATIENCE_S)
    assert result.ready()
    return result


def test_the_answers_are_those_of_multiprocessing(their_pool: Any) -> None:
    with their_pool(2) as theirs, Pool(2) as ours:
        for name, call in CALLS.items():
            assert outcome(lambda: call(ours)) == outcome(lambda: call(theirs)), name


def test_calls_on_a_pool_that_has_ended_are_refused_as_there(their_pool: Any) -> None:
    theirs, ours = their_pool(1), Pool(1)
    for pool in (theirs, ours):
        pool.close()
        pool.join()
    for call in (CALLS["map"], CALLS["apply"], CALLS["imap"], lambda pool: pool.__enter__()):
        refused = outcome(lambda: call(ours))
        assert refused == outcome(lambda: call(theirs)) and refused[0] is ValueError


@pytest.mark.parametrize("processes", [0, -1])
def test_wrong_numbers_of_processes_are_refused(processes: int) -> None:
    assert outcome(lambda: Pool(processes)) == outcome(lambda: multiprocessing.Pool(processes))
    assert outcome(lambda: Pool(1, maxtasksperchild=0))[0] is ValueError
    assert outcome(lambda: Pool(1, initializer=3))[0] is TypeError  # type: ignore[arg-type]


def test_the_initializer_runs_in_each_process() -> None:
    with Pool(2, set_base, (100,)) as pool:
        assert pool.map(add_base, range(6), chunksize=1) == [100, 101, 102, 103, 104, 105]
    assert _base == 0


def test_globals_of_the_program_are_set_by_its_initializer(program: Any) -> None:
    output, _ = program.run(
        source="""
        from bireme.util.multiprocessing import Pool

        base, calls = None, 0

        def begin(value):
            remember(value)

        def remember(value):
            global base
            base = value

        def add(x):
            global calls
            calls += 1
            return base + x, calls

        with Pool(1, begin, (10,)) as pool:
            print(pool.map(add, [1, 2, 3], chunksize=1))
        """
    )
    assert output == "[(11, 1), (12, 2), (13, 3)]\n"


def test_an_error_of_the_initializer_is_told_and_not_tried_for_ever() -> None:
    with Pool(1, fail, (1,)) as pool, pytest.raises(Exception, match="no"):
        pool.apply_async(power, (1,)).get(PATIENCE_S)


def test_exceptions_show_where_they_were_raised() -> None:
    with Pool(1) as pool, pytest.raises(OwnError) as caught:
        pool.apply(fail, (5,))
    assert type(caught.value) is OwnError and caught.value.number == 5
    assert "in fail" in str(caught.value.__cause__)


def test_callbacks_get_values_and_errors() -> None:
    got: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with Pool(2) as pool:
        pool.apply_async(power, (3,), callback=got.put, error_callback=pytest.fail)
        assert got.get(timeout=PATIENCE_S) == 9
        pool.map_async(power, [1, 2], callback=got.put)
        assert got.get(timeout=PATIENCE_S) == [1, 4]
        pool.map_async(power, [], callback=got.put)
        assert got.get(timeout=PATIENCE_S) == []
        pool.apply_async(fail, (3,), callback=pytest.fail, error_callback=got.put)
        assert isinstance(got.get(timeout=PATIENCE_S), OwnError)
        # A callback may use the pool, and one that raises harms nothing.
        pool.apply_async(power, (2,), callback=lambda value: got.put(pool.apply_async(power, (value,))))
        assert got.get(timeout=PATIENCE_S).get(PATIENCE_S) == 16
        pool.apply_async(power, (2,), callback=inverse_of_nothing).wait(PATIENCE_S)
        assert pool.apply(power, (5,)) == 25


def inverse_of_nothing(value: Any) -> float:
    return inverse(0)


def wait_for(path: str) -> str:
    """Returns when somebody writes into the pipe."""
    with open(path, encoding="ascii") as pipe:
        return pipe.read()


@pytest.fixture
def gate(tmp_path: Path) -> str:
    path = str(tmp_path / "gate")
    os.mkfifo(path)
    return path


def test_timeouts_are_those_of_multiprocessing_and_of_python(gate: str) -> None:
    with Pool(1) as pool:
        result = pool.apply_async(wait_for, (gate,))
        with pytest.raises(multiprocessing.TimeoutError):
            result.get(timeout=0.01)
        with pytest.raises(TimeoutError):
            result.get(timeout=0)
        assert not result.ready()
        with pytest.raises(ValueError, match="not ready"):
            result.successful()
        items = pool.imap(wait_for, [gate])
        with pytest.raises(multiprocessing.TimeoutError):
            items.next(timeout=0.01)
        Path(gate).write_text("open", encoding="ascii")
        assert result.get(PATIENCE_S) == "open"
        threading.Thread(target=lambda: Path(gate).write_text("again", encoding="ascii")).start()
        assert items.next(timeout=PATIENCE_S) == "again"


def test_terminate_fails_what_is_not_done(gate: str) -> None:
    pool = Pool(1)
    running, waiting = pool.apply_async(wait_for, (gate,)), pool.map_async(power, [1, 2])
    pool.terminate()
    pool.join()
    for result in (running, waiting):
        with pytest.raises(RuntimeError, match="terminated"):
            result.get(PATIENCE_S)


def test_close_lets_everything_finish() -> None:
    pool = Pool(2)
    results = [pool.apply_async(power, (n,)) for n in range(20)]
    items = pool.imap(power, iter(range(50)))
    pool.close()
    pool.join()
    assert all(result.ready() for result in results)
    assert [result.get() for result in results] == [n**2 for n in range(20)]
    assert list(items) == [n**2 for n in range(50)]


def test_a_process_that_dies_costs_its_work_alone() -> None:
    with Pool(1) as pool:
        with pytest.raises(bireme.exceptions.ActorDiedError):
            pool.apply_async(os._exit, (3,)).get(PATIENCE_S)
        assert pool.apply_async(power, (3,)).get(PATIENCE_S) == 9


def test_processes_are_replaced_after_maxtasksperchild() -> None:
    with Pool(1, maxtasksperchild=2) as pool:
        pids = [pool.apply(os.getpid) for _ in range(6)]
    assert pids[0] == pids[1] != pids[2] == pids[3] != pids[4] == pids[5]


def test_processes_are_actors_as_many_as_asked_for(gate: str) -> None:
    with Pool(5) as pool:
        running = [pool.apply_async(wait_for, (gate,)) for _ in range(4)]
        # More processes than CPUs: all five are at work.
        assert pool.apply(os.getpid) != os.getpid()
        assert not any(result.ready() for result in running)
    assert Pool(1, ray_remote_args={"num_cpus": 1}).apply(held) == {"CPU": 1.0}


def held() -> dict[str, float]:
    return bireme.get_runtime_context().get_assigned_resources()


def test_imap_reads_an_iterable_without_end_as_it_goes() -> None:
    read = []

    def endless() -> Iterator[int]:
        for n in range(1_000_000):
            read.append(n)
            yield n

    with Pool(2) as pool:
        items = pool.imap(power, endless())
        assert [next(items) for _ in range(5)] == [0, 1, 4, 9, 16]
        assert len(read) < 1_000_000


def test_imap_of_an_iterable_that_waits_for_results() -> None:
    inputs: queue.SimpleQueue[int | None] = queue.SimpleQueue()
    inputs.put(2)
    with Pool(2) as pool:
        values = []
        for value in pool.imap(power, iter(inputs.get, None)):
            values.append(value)
            inputs.put(value if value < 100 else None)
    assert values == [4, 16, 256]


def test_a_pool_that_nobody_holds_ends_and_a_pending_result_holds_it() -> None:
    result: AsyncResult[list[int]] = Pool(1).map_async(power, range(5))
    assert result.get(PATIENCE_S) == [0, 1, 4, 9, 16]
    # The check after each test sees anything that is left of it.
