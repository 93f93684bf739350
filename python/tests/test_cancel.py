"""Cancelling tasks and calls."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import await_condition, await_end

import bireme
from bireme import exceptions
from bireme.context import Context


@bireme.remote(max_retries=0)
def sleep_long(folder: str, seconds: float = 600.0) -> None:
    Path(folder, "began").write_text(str(os.getpid()))
    try:
        time.sleep(seconds)  # a task that is still running
    finally:
        Path(folder, "ended").touch()


@bireme.remote
def add(a: Any, b: Any = 0) -> Any:
    return a + b


def await_file(path: Path) -> None:
    await_condition(path.exists, f"{path.name}")


def assert_cancelled(ref: Any) -> None:
    with pytest.raises(exceptions.TaskCancelledError):
        bireme.get(ref)


def test_a_sleeping_task_is_interrupted_and_its_finally_runs(runtime: Context, tmp_path: Path) -> None:
    ref = sleep_long.remote(str(tmp_path))
    await_file(tmp_path / "began")
    bireme.cancel(ref)
    assert_cancelled(ref)
    await_file(tmp_path / "ended")
    assert bireme.get(add.remote(1, 2)) == 3


def test_a_task_that_computes_is_interrupted(runtime: Context, tmp_path: Path) -> None:
    @bireme.remote
    def compute(folder: str) -> None:
        Path(folder, "began").touch()
        while True:
            sum(range(100))

    ref = compute.remote(str(tmp_path))
    await_file(tmp_path / "began")
    bireme.cancel(ref)
    assert_cancelled(ref)


@pytest.mark.parametrize("runtime", [{"num_cpus": 1}], indirect=True)
def test_a_queued_task_never_starts(runtime: Context, tmp_path: Path) -> None:
    @bireme.remote
    def touch(path: str) -> None:
        Path(path).touch()

    (tmp_path / "first").mkdir()
    running = sleep_long.remote(str(tmp_path / "first"))
    await_file(tmp_path / "first" / "began")
    queued = touch.remote(str(tmp_path / "never"))
    bireme.cancel(queued)
    assert_cancelled(queued)
    bireme.cancel(running)
    assert_cancelled(running)
    assert bireme.get(add.remote(1)) == 1
    assert not (tmp_path / "never").exists()


def test_a_task_that_waits_for_an_argument_is_cancelled(runtime: Context, tmp_path: Path) -> None:
    slow = sleep_long.remote(str(tmp_path))
    waiting = add.remote(slow, 1)
    bireme.cancel(waiting)
    assert_cancelled(waiting)
    await_file(tmp_path / "began")
    bireme.cancel(slow)
    assert_cancelled(slow)


def test_a_finished_task_is_not_changed(runtime: Context) -> None:
    ref = add.remote(1, 2)
    assert bireme.get(ref) == 3
    bireme.cancel(ref)
    bireme.cancel(ref, force=True)
    assert bireme.get(ref) == 3


def test_a_second_cancel_does_nothing_more(runtime: Context, tmp_path: Path) -> None:
    ref = sleep_long.remote(str(tmp_path))
    await_file(tmp_path / "began")
    for _ in range(3):
        bireme.cancel(ref)
    assert_cancelled(ref)
    assert bireme.get([add.remote(n) for n in range(20)]) == list(range(20))


def test_a_cancelled_task_is_not_tried_again(runtime: Context, tmp_path: Path) -> None:
    ref = sleep_long.options(max_retries=5, retry_exceptions=True).remote(str(tmp_path))
    await_file(tmp_path / "began")
    bireme.cancel(ref)
    assert_cancelled(ref)
    (tmp_path / "began").unlink()
    assert bireme.get([add.remote(n) for n in range(10)]) == list(range(10))
    assert not (tmp_path / "began").exists()


def test_a_task_that_swallows_the_interrupt_can_be_forced(runtime: Context, tmp_path: Path) -> None:
    @bireme.remote(max_retries=0)
    def stubborn(folder: str) -> None:
        Path(folder, "began").write_text(str(os.getpid()))
        while True:
            try:
                time.sleep(600)  # a task that is still running
            except KeyboardInterrupt:
                Path(folder, "swallowed").touch()

    ref = stubborn.remote(str(tmp_path))
    await_condition(lambda: (tmp_path / "began").exists() and (tmp_path / "began").read_text(), "the task")
    bireme.cancel(ref)
    await_file(tmp_path / "swallowed")
    pid = int((tmp_path / "began").read_text())
    bireme.cancel(ref, force=True)
    with pytest.raises(exceptions.TaskCancelledError):
        bireme.get(ref)
    await_end(pid)
    assert bireme.get(add.remote(1)) == 1


def test_a_task_that_returns_in_spite_of_the_interrupt_keeps_its_result(runtime: Context, tmp_path: Path) -> None:
    @bireme.remote
    def stubborn(folder: str) -> str:
        try:
            Path(folder, "began").touch()
            time.sleep(600)  # a task that is still running
        except KeyboardInterrupt:
            pass
        return "here"

    ref = stubborn.remote(str(tmp_path))
    await_file(tmp_path / "began")
    bireme.cancel(ref)
    assert bireme.get(ref) == "here"


def test_force_ends_the_process(runtime: Context, tmp_path: Path) -> None:
    ref = sleep_long.remote(str(tmp_path))
    await_condition(lambda: (tmp_path / "began").exists() and (tmp_path / "began").read_text(), "the task")
    pid = int((tmp_path / "began").read_text())
    bireme.cancel(ref, force=True)
    with pytest.raises(exceptions.TaskCancelledError):
        bireme.get(ref)
    await_end(pid)


@pytest.mark.parametrize("recursive", [True, False])
def test_children_are_cancelled_with_their_parent_unless_not_wanted(
    runtime: Context, tmp_path: Path, recursive: bool
) -> None:
    @bireme.remote(max_retries=0)
    def child(folder: str) -> None:
        Path(folder, "began").touch()
        while not Path(folder, "enough").exists():
            time.sleep(0.005)  # a task that is still running
        Path(folder, "finished").touch()

    @bireme.remote(max_retries=0)
    def parent(folder: str) -> None:
        bireme.get(child.remote(folder))

    ref = parent.remote(str(tmp_path))
    await_file(tmp_path / "began")
    bireme.cancel(ref, recursive=recursive)
    assert_cancelled(ref)
    if recursive:
        await_condition(lambda: bireme.available_resources().get("CPU") == 2, "the end of the child")
        assert not (tmp_path / "finished").exists()
    else:
        (tmp_path / "enough").touch()
        await_file(tmp_path / "finished")


def test_a_parent_that_waits_for_its_child_is_interrupted(runtime: Context, tmp_path: Path) -> None:
    @bireme.remote(max_retries=0)
    def parent(folder: str) -> None:
        try:
            bireme.get(sleep_long.remote(folder))
        finally:
            Path(folder, "parent ended").touch()

    ref = parent.remote(str(tmp_path))
    await_file(tmp_path / "began")
    bireme.cancel(ref)
    assert_cancelled(ref)
    await_file(tmp_path / "parent ended")
    await_file(tmp_path / "ended")


@pytest.mark.parametrize("runtime", [{"num_cpus": 1}], indirect=True)
def test_a_task_beside_a_waiting_one_is_interrupted(runtime: Context, tmp_path: Path) -> None:
    """With one CPU the child may run in the process of its parent, on another thread."""

    @bireme.remote
    class Box:
        def __init__(self) -> None:
            self.kept: list[Any] = []
            self.full = asyncio.Event()

        async def keep(self, kept: list[Any]) -> None:
            self.kept = kept
            self.full.set()

        async def give(self) -> list[Any]:
            await self.full.wait()
            return self.kept

    box = Box.remote()

    @bireme.remote(max_retries=0)
    def giving_parent(folder: str, box: Any) -> str:
        ref = sleep_long.remote(folder)
        bireme.get(box.keep.remote([ref]))
        try:
            bireme.get(ref)
        except exceptions.TaskCancelledError:
            return "child cancelled"
        return "child ended"

    outer = giving_parent.remote(str(tmp_path), box)
    await_file(tmp_path / "began")
    (child,) = bireme.get(box.give.remote())
    bireme.cancel(child)
    assert bireme.get(outer) == "child cancelled"


def test_a_call_of_a_plain_actor_is_interrupted_and_the_actor_lives(runtime: Context, tmp_path: Path) -> None:
    @bireme.remote
    class Sleeper:
        def __init__(self) -> None:
            self.calls = 0

        def rest(self, folder: str) -> None:
            self.calls += 1
            Path(folder, "began").touch()
            time.sleep(600)  # a task that is still running

        def count(self) -> int:
            return self.calls

    sleeper = Sleeper.remote()
    running, queued = sleeper.rest.remote(str(tmp_path)), sleeper.rest.remote(str(tmp_path))
    await_file(tmp_path / "began")
    bireme.cancel(queued)
    bireme.cancel(running)
    assert_cancelled(running)
    assert_cancelled(queued)
    assert bireme.get(sleeper.count.remote()) == 1


def test_force_is_refused_for_calls_of_actors(runtime: Context, tmp_path: Path) -> None:
    @bireme.remote
    class Actor:
        async def call(self) -> int:
            return 1

    actor = Actor.remote()
    ref = actor.call.remote()
    try:
        bireme.cancel(ref, force=True)
    except ValueError as error:
        assert "kill" in str(error)


def test_a_generator_is_cancelled(runtime: Context) -> None:
    @bireme.remote
    def forever() -> Any:
        n = 0
        while True:
            yield n
            n += 1

    generator = forever.options(max_buffered_items=2).remote()
    assert bireme.get(next(generator)) == 0
    bireme.cancel(generator)
    with pytest.raises(exceptions.TaskCancelledError):
        for _ in range(100):
            bireme.get(next(generator))


def test_only_references_can_be_cancelled(runtime: Context) -> None:
    with pytest.raises(TypeError, match="cancel takes the reference of a task's result, not a int"):
        bireme.cancel(5)


def test_many_tasks_are_cancelled_at_once(runtime: Context) -> None:
    @bireme.remote
    def wait_long() -> None:
        time.sleep(600)  # a task that is still running

    refs = [wait_long.remote() for _ in range(100)]
    for ref in refs:
        bireme.cancel(ref)
    for ref in refs:
        assert_cancelled(ref)
    assert bireme.get([add.remote(n) for n in range(10)]) == list(range(10))
