"""References as futures: await, asyncio's functions, and concurrent.futures."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import bireme
from bireme import exceptions


@bireme.remote
def read(path: str) -> str:
    """Waits for a file: a task that the test ends when it likes."""
    while not Path(path).exists():
        time.sleep(0.002)  # a task that is still running
    return "read"


@bireme.remote
def square(n: int) -> int:
    return n * n


@bireme.remote
def fail() -> None:
    raise ValueError("here")


def test_await_gives_the_value_or_raises(runtime: Any) -> None:
    async def main() -> None:
        assert await square.remote(3) == 9
        assert await bireme.put("there") == "there"
        ref = square.remote(4)
        assert [await ref, await ref] == [16, 16]
        with pytest.raises(ValueError, match="here") as caught:
            await fail.remote()
        assert isinstance(caught.value, exceptions.TaskError)

    asyncio.run(main())
    asyncio.run(main())


def test_many_are_awaited_at_once(runtime: Any) -> None:
    async def one(n: int) -> int:
        return await square.remote(n)

    async def main() -> list[int]:
        return list(await asyncio.gather(*[one(n) for n in range(500)]))

    assert asyncio.run(main()) == [n * n for n in range(500)]


def test_gather_wait_for_shield_and_as_completed_take_references(runtime: Any, tmp_path: Path) -> None:
    async def main() -> None:
        assert list(await asyncio.gather(square.remote(1), square.remote(2))) == [1, 4]
        results = await asyncio.gather(square.remote(1), fail.remote(), return_exceptions=True)
        assert results[0] == 1 and isinstance(results[1], ValueError)
        assert await asyncio.wait_for(square.remote(5), 60) == 25
        assert await asyncio.shield(square.remote(6)) == 36
        assert sorted([await done for done in asyncio.as_completed([square.remote(n) for n in range(5)])]) == [0, 1, 4, 9, 16]
        slow = read.remote(str(tmp_path / "file"))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(slow, 0.01)
        (tmp_path / "file").touch()
        assert await slow == "read", "giving up the wait does not cancel the task"
        assert await asyncio.ensure_future(square.remote(7)) == 49
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_value(square.remote(n))) for n in range(3)]
        assert [task.result() for task in tasks] == [0, 1, 4]

    async def _value(ref: Any) -> Any:
        return await ref

    asyncio.run(main())


def test_asyncio_wait_takes_references_and_gives_them_back(runtime: Any, tmp_path: Path) -> None:
    async def main() -> None:
        # To type checkers a reference is no future; asyncio asks for its methods only.
        slow: Any = read.remote(str(tmp_path / "file"))
        fast: Any = square.remote(2)
        done, pending = await asyncio.wait({slow, fast}, return_when=asyncio.FIRST_COMPLETED)
        assert done == {fast} and pending == {slow} and fast.result() == 4
        done, pending = await asyncio.wait([slow], timeout=0.01)
        assert not done and pending == {slow} and not slow.done() and not slow.cancelled()
        for question in (slow.result, slow.exception):
            with pytest.raises(asyncio.InvalidStateError):
                question()
        bad: Any = fail.remote()
        done, pending = await asyncio.wait([slow, bad], return_when=asyncio.FIRST_EXCEPTION)
        assert done == {bad} and isinstance(bad.exception(), ValueError)
        with pytest.raises(ValueError, match="here"):
            bad.result()
        (tmp_path / "file").touch()
        done, pending = await asyncio.wait([slow, fast, asyncio.create_task(asyncio.sleep(0))])
        assert {slow, fast} < done and not pending and slow.exception() is None
        refs: list[Any] = [square.remote(n) for n in range(2_000)]
        done, pending = await asyncio.wait(refs)
        assert done == set(refs) and not pending

    asyncio.run(main())


def test_callbacks_are_called_once_on_the_loop_and_can_be_taken_back(runtime: Any) -> None:
    async def main() -> None:
        loop, called = asyncio.get_running_loop(), asyncio.Queue[Any]()
        ref = square.remote(3)
        unwanted = called.put_nowait
        ref.add_done_callback(unwanted)
        ref.add_done_callback(unwanted)
        assert ref.remove_done_callback(unwanted) == 2 and ref.remove_done_callback(unwanted) == 0
        ref.add_done_callback(lambda it: called.put_nowait((it, asyncio.get_running_loop())))
        assert await called.get() == (ref, loop)
        ref.add_done_callback(lambda it: called.put_nowait("at once"))
        assert await called.get() == "at once" and called.empty()

    asyncio.run(main())
    with pytest.raises(RuntimeError, match="loop"):
        square.remote(1).add_done_callback(print)


def test_a_cancelled_task_is_a_cancelled_reference(runtime: Any, tmp_path: Path) -> None:
    first = read.remote(str(tmp_path / "file"))

    @bireme.remote
    def use(value: Any) -> Any:
        return value

    waiting = use.remote(first)
    bireme.cancel(waiting)
    assert bireme.wait([waiting])[0] == [waiting]
    assert waiting.done() and waiting.cancelled() and isinstance(waiting.exception(), exceptions.TaskCancelledError)
    (tmp_path / "file").touch()
    assert bireme.get(first) == "read" and not first.cancelled()


def test_a_coroutine_that_is_cancelled_while_it_awaits_leaves_the_loop_in_order(runtime: Any, tmp_path: Path) -> None:
    async def main() -> None:
        slow = read.remote(str(tmp_path / "file"))

        async def wait() -> Any:
            return await slow

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        (tmp_path / "file").touch()
        assert await slow == "read"

    asyncio.run(main())


def test_several_loops_in_several_threads(runtime: Any) -> None:
    async def main() -> int:
        return sum([await square.remote(n) for n in range(20)])

    results: list[int] = []
    threads = [threading.Thread(target=lambda: results.append(asyncio.run(main()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [sum(n * n for n in range(20))] * 4


def test_concurrent_futures_of_references(runtime: Any, tmp_path: Path) -> None:
    futures = [square.remote(n).future() for n in range(50)]
    assert all(isinstance(future, concurrent.futures.Future) for future in futures)
    done, pending = concurrent.futures.wait(futures)
    assert not pending and [future.result() for future in futures] == [n * n for n in range(50)]
    assert sorted(f.result() for f in concurrent.futures.as_completed([square.remote(n).future() for n in range(3)])) == [0, 1, 4]
    assert isinstance(fail.remote().future().exception(), ValueError)
    slow = read.remote(str(tmp_path / "file"))
    future = slow.future()
    with pytest.raises(concurrent.futures.TimeoutError):
        future.result(0.01)
    assert future.cancel() and future.cancelled()
    called: list[Any] = []
    second, seen = slow.future(), threading.Event()

    def note(it: Any) -> None:
        called.append(it.result())
        seen.set()

    second.add_done_callback(note)
    (tmp_path / "file").touch()
    assert seen.wait(60) and called == ["read"]


def test_a_future_of_a_runtime_that_ends_gets_an_error(tmp_path: Path) -> None:
    bireme.init(num_cpus=1)
    future = read.remote(str(tmp_path / "file")).future()
    bireme.shutdown()
    assert isinstance(future.exception(60), exceptions.BiremeError)


def test_an_await_of_a_runtime_that_ends_gets_an_error(tmp_path: Path) -> None:
    async def main() -> None:
        slow = read.remote(str(tmp_path / "file"))
        waiting = asyncio.ensure_future(slow)
        await asyncio.sleep(0)
        bireme.shutdown()
        with pytest.raises(exceptions.BiremeError):
            await asyncio.wait_for(waiting, 60)

    bireme.init(num_cpus=1)
    asyncio.run(main())
