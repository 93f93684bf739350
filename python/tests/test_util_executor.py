"""`bireme.util.Executor` with a running engine: what code for `concurrent.futures` may rely on."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import operator
from collections.abc import Iterator
from typing import Any

import pytest

import bireme
from bireme.util import Executor


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


@bireme.remote
def square(x: int) -> int:
    return x * x


def test_submit_and_map() -> None:
    with Executor() as executor:
        future = executor.submit(operator.add, 1, 2)
        assert isinstance(future, concurrent.futures.Future)
        assert future.result(timeout=60) == 3
        assert executor.submit(lambda x, y=1: x + y, 1, y=5).result(60) == 6
        assert executor.submit(functools.partial(pow, 2), 5).result(60) == 32
        assert executor.submit(square, 7).result(60) == 49
        assert list(executor.map(lambda x, y: x * y, [1, 2, 3], [4, 5, 6])) == [4, 10, 18]


@pytest.mark.parametrize("chunksize", [1, 2, 7, 100])
def test_map_in_chunks_keeps_the_order(chunksize: int) -> None:
    with Executor() as executor:
        assert list(executor.map(lambda x: x + 1, range(20), chunksize=chunksize)) == list(range(1, 21))
        with pytest.raises(ValueError):
            executor.map(len, [], chunksize=0)


def test_errors_are_those_of_the_function() -> None:
    with Executor() as executor:
        assert isinstance(executor.submit(int, "x").exception(60), ValueError)
        with pytest.raises(ZeroDivisionError):
            list(executor.map(lambda x: 1 / x, [1, 0]))


def test_max_workers_bounds_what_runs() -> None:
    gate = Gate.remote()
    with Executor(max_workers=2, num_cpus=0) as executor:
        futures = [executor.submit(lambda g=gate, v=n: bireme.get(g.pass_through.remote(v))) for n in range(6)]
        assert executor._started == 2
        assert futures[5].cancel()
        bireme.get(gate.open.remote())
        assert [future.result(60) for future in futures[:5]] == list(range(5))
    with pytest.raises(ValueError):
        Executor(max_workers=0)


def test_the_standard_library_waits_for_its_futures() -> None:
    with Executor() as executor:
        futures = [executor.submit(pow, n, 2) for n in range(5)]
        assert sorted(future.result() for future in concurrent.futures.as_completed(futures, timeout=60)) == [
            0,
            1,
            4,
            9,
            16,
        ]


def test_after_shutdown_nothing_is_taken() -> None:
    executor = Executor()
    future = executor.submit(pow, 2, 3)
    executor.shutdown()
    assert future.done() and future.result() == 8
    with pytest.raises(RuntimeError, match="shutdown"):
        executor.submit(pow, 2, 3)


def test_map_times_out() -> None:
    gate = Gate.remote()
    executor = Executor(num_cpus=0)
    results = executor.map(lambda g: bireme.get(g.pass_through.remote(1)), [gate], timeout=0.05)
    with pytest.raises(TimeoutError):
        next(results)
    bireme.get(gate.open.remote())
    executor.shutdown(cancel_futures=True)
