"""How actors end and start again: handles, kill, crashes, exit_actor, constructors that fail."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from conftest import await_condition, await_end, is_alive

import bireme
from bireme import exceptions
from bireme.context import Context


@bireme.remote
class Counter:
    def __init__(self, start: int = 0) -> None:
        self.total = start

    def add(self, n: int = 1) -> int:
        self.total += n
        return self.total

    def pid(self) -> int:
        return os.getpid()

    def crash(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def died(ref: Any) -> str:
    """The text of the error of a call to a dead actor."""
    with pytest.raises(exceptions.ActorDiedError) as caught:
        bireme.get(ref)
    return str(caught.value)


def test_an_actor_ends_with_its_last_handle(runtime: Context) -> None:
    counter = Counter.remote()
    pid = bireme.get(counter.pid.remote())
    copy = bireme.get(bireme.put([counter]))[0]
    del counter
    gc.collect()
    assert bireme.get(copy.add.remote()) == 1
    del copy
    await_end(pid)


def test_calls_made_before_the_last_handle_went_still_run(runtime: Context) -> None:
    ref = Counter.remote().add.remote(7)
    assert bireme.get(ref) == 7


def test_a_handle_inside_another_actor_keeps_an_actor_alive(runtime: Context) -> None:
    @bireme.remote
    class Keeper:
        def __init__(self) -> None:
            self.kept: Any = None

        def keep(self, kept: Any) -> None:
            self.kept = kept[0]

        def add(self) -> int:
            return bireme.get(self.kept.add.remote())

        def drop(self) -> None:
            self.kept = None

    keeper, counter = Keeper.remote(), Counter.remote()
    pid = bireme.get(counter.pid.remote())
    bireme.get(keeper.keep.remote([counter]))
    del counter
    gc.collect()
    assert bireme.get(keeper.add.remote()) == 1
    assert is_alive(pid)
    bireme.get(keeper.drop.remote())
    await_end(pid)


def test_a_bound_method_keeps_its_actor_alive(runtime: Context) -> None:
    add = Counter.remote().add
    gc.collect()
    assert bireme.get([add.remote(), add.remote()]) == [1, 2]


def test_kill_ends_an_actor_at_once(runtime: Context) -> None:
    counter = Counter.remote()
    pid = bireme.get(counter.pid.remote())
    bireme.kill(counter)
    await_end(pid)
    assert "kill" in died(counter.add.remote())


def test_kill_can_let_an_actor_start_again(runtime: Context) -> None:
    counter = Counter.options(max_restarts=1).remote(5)
    first = bireme.get([counter.add.remote(), counter.pid.remote()])[1]
    bireme.kill(counter, no_restart=False)
    await_end(first)

    def again() -> Any:
        try:
            return bireme.get(counter.pid.remote())
        except exceptions.ActorUnavailableError:
            return None

    assert await_condition(again, "the second life of the actor") != first
    assert bireme.get(counter.add.remote()) == 6
    bireme.kill(counter)
    died(counter.add.remote())


def test_kill_takes_only_handles(runtime: Context) -> None:
    with pytest.raises(ValueError, match=r"kill takes the handle of an actor, not a ObjectRef; use cancel"):
        bireme.kill(bireme.put(1))  # type: ignore[arg-type]


def test_a_crashed_actor_says_how_it_died(runtime: Context) -> None:
    counter = Counter.remote()
    pid = bireme.get(counter.pid.remote())
    text = died(counter.crash.remote())
    assert "SIGKILL" in text and str(pid) in text
    assert "SIGKILL" in died(counter.add.remote())


def test_an_actor_with_restarts_loses_its_state_and_goes_on(runtime: Context) -> None:
    counter = Counter.options(max_restarts=2, max_task_retries=3).remote(100)
    assert bireme.get(counter.add.remote()) == 101
    first = bireme.get(counter.pid.remote())
    os.kill(first, signal.SIGKILL)
    assert bireme.get(counter.add.remote()) == 101
    assert bireme.get(counter.pid.remote()) != first


def test_a_call_that_crashes_its_actor_is_tried_again(runtime: Context, tmp_path: Path) -> None:
    @bireme.remote(max_restarts=-1)
    class Flaky:
        @bireme.method(max_task_retries=2)
        def crash_twice(self, folder: str) -> int:
            tries = len(os.listdir(folder))
            Path(folder, str(tries)).touch()
            if tries < 2:
                os._exit(3)
            return tries

        def crash(self) -> None:
            os._exit(4)

        def context(self) -> bool:
            return bireme.get_runtime_context().was_current_actor_reconstructed

    flaky = Flaky.remote()
    assert not bireme.get(flaky.context.remote())
    assert bireme.get(flaky.crash_twice.remote(str(tmp_path))) == 2
    with pytest.raises(exceptions.ActorError, match="exit code 4|exited with 4|code 4"):
        bireme.get(flaky.crash.remote())

    def reconstructed() -> Any:
        try:
            return bireme.get(flaky.context.remote())
        except exceptions.ActorUnavailableError:
            return None

    await_condition(reconstructed, "an actor that knows that it was started again")


def test_restarts_end_at_their_limit(runtime: Context) -> None:
    counter = Counter.options(max_restarts=1, max_task_retries=-1).remote()
    died(counter.crash.remote())
    died(counter.add.remote())


def test_exit_actor_ends_the_actor_in_good_order(runtime: Context, tmp_path: Path) -> None:
    @bireme.remote
    class Leaver:
        def __init__(self, folder: str) -> None:
            import atexit

            self.folder = folder
            atexit.register(Path(folder, "atexit").touch)

        def __ray_shutdown__(self) -> None:
            Path(self.folder, "hook").touch()

        def leave(self) -> None:
            bireme.exit_actor()

        def leave_whatever(self) -> None:
            try:
                bireme.exit_actor()
            except Exception:
                Path(self.folder, "caught").touch()

        def pid(self) -> int:
            return os.getpid()

    leaver = Leaver.remote(str(tmp_path))
    pid = bireme.get(leaver.pid.remote())
    assert "by itself" in died(leaver.leave.remote())
    await_end(pid)
    assert sorted(os.listdir(tmp_path)) == ["atexit", "hook"]
    assert "by itself" in died(leaver.pid.remote())

    leaver = Leaver.remote(str(tmp_path))
    died(leaver.leave_whatever.remote())
    assert sorted(os.listdir(tmp_path)) == ["atexit", "hook"]


def test_exit_actor_ends_an_actor_that_could_start_again(runtime: Context) -> None:
    @bireme.remote(max_restarts=-1, max_task_retries=-1)
    class Leaver:
        def leave(self) -> None:
            bireme.exit_actor()

    leaver = Leaver.remote()
    died(leaver.leave.remote())
    died(leaver.leave.remote())


@pytest.mark.parametrize("round", range(5))
def test_no_call_runs_after_exit_actor(runtime: Context, tmp_path: Path, round: int) -> None:
    @bireme.remote(max_concurrency=2)
    class Leaver:
        def leave(self) -> None:
            bireme.exit_actor()

        def touch(self, path: str) -> None:
            Path(path).touch()

    leaver = Leaver.options(max_concurrency=1 + round % 2).remote()
    bireme.wait([leaver.leave.remote()])
    died(leaver.touch.remote(str(tmp_path / "touched")))
    assert not (tmp_path / "touched").exists()


def test_exit_actor_is_only_for_actors(runtime: Context) -> None:
    @bireme.remote
    def leave() -> None:
        bireme.exit_actor()

    with pytest.raises(RuntimeError, match="not in a method of an actor"):
        bireme.exit_actor()
    with pytest.raises(RuntimeError, match="not in a method of an actor"):
        bireme.get(leave.remote())


def test_terminate_runs_after_the_calls_before_it(runtime: Context) -> None:
    counter = Counter.remote()
    pid = bireme.get(counter.pid.remote())
    before = counter.add.remote()
    end = counter.__ray_terminate__.remote()
    assert bireme.get(before) == 1
    died(end)
    await_end(pid)
    died(counter.add.remote())


def test_hooks_run_when_the_last_handle_of_an_actor_goes(runtime: Context, tmp_path: Path) -> None:
    @bireme.remote
    class Tidy:
        def __init__(self, path: str) -> None:
            self.path = path

        def __ray_shutdown__(self) -> None:
            Path(self.path).touch()

    path = tmp_path / "tidied"
    tidy = Tidy.remote(str(path))
    bireme.get(tidy.__ray_ready__.remote())
    del tidy
    await_condition(path.exists, "the hook of the actor")


class Unhappy:
    def __init__(self, depth: int) -> None:
        self.dig(depth)

    def dig(self, depth: int) -> None:
        if depth == 0:
            raise ArithmeticError("no bottom")
        self.dig(depth - 1)

    def call(self) -> None: ...


def test_an_error_of_the_constructor_shows_on_the_first_call_with_its_traceback(runtime: Context) -> None:
    unhappy = bireme.remote(Unhappy).remote(2)
    for _ in range(2):
        text = died(unhappy.call.remote())
        assert "ArithmeticError" in text and "no bottom" in text
        assert "in dig" in text and "test_actors_lifetime.py" in text


def test_a_failed_constructor_is_not_tried_again_but_a_crashed_one_is(runtime: Context, tmp_path: Path) -> None:
    @bireme.remote(max_restarts=3, max_task_retries=-1)
    class Starter:
        def __init__(self, folder: str) -> None:
            tries = len(os.listdir(folder))
            Path(folder, str(tries)).touch()
            if tries < 2:
                os._exit(1)

        def pid(self) -> int:
            return os.getpid()

    starter = Starter.remote(str(tmp_path))
    assert bireme.get(starter.pid.remote()) != os.getpid()
    assert len(os.listdir(tmp_path)) == 3


def test_a_constructor_that_cannot_get_its_argument_fails_with_its_reason(runtime: Context) -> None:
    @bireme.remote
    def broken() -> None:
        raise ValueError("no number")

    counter = Counter.remote(broken.remote())
    assert "no number" in died(counter.add.remote())


def test_pending_calls_are_limited(runtime: Context) -> None:
    @bireme.remote(max_pending_calls=3)
    class Busy:
        async def wait(self, gate: Any) -> int:
            await gate[0]
            return 1

    @bireme.remote
    class Gate:
        def __init__(self) -> None:
            import asyncio

            self.event = asyncio.Event()

        async def wait(self) -> None:
            await self.event.wait()

        async def open(self) -> None:
            self.event.set()

    gate = Gate.remote()
    opened = gate.wait.remote()
    busy = Busy.remote()
    refs = [busy.wait.remote([opened]) for _ in range(3)]
    with pytest.raises(exceptions.PendingCallsLimitExceeded, match="3"):
        busy.wait.remote([opened])
    bireme.get(gate.open.remote())
    assert bireme.get(refs) == [1, 1, 1]
    assert bireme.get(busy.wait.remote([opened])) == 1


def test_an_actor_holds_its_cpus_while_it_lives(runtime: Context) -> None:
    counter = Counter.options(num_cpus=2).remote()
    pid = bireme.get(counter.pid.remote())
    assert bireme.available_resources().get("CPU", 0) == 0
    waiting = Counter.options(num_cpus=1).remote()
    ref = waiting.add.remote()
    ready, _ = bireme.wait([ref], timeout=0)
    assert not ready
    del counter
    assert bireme.get(ref) == 1
    await_end(pid)
    await_condition(lambda: bireme.available_resources()["CPU"] == 1, "the CPUs of the ended actor")


def test_more_actors_than_cpus_can_live(runtime: Context) -> None:
    actors = [Counter.remote(n) for n in range(6)]
    assert bireme.get([actor.add.remote() for actor in actors]) == [1, 2, 3, 4, 5, 6]


def test_an_actor_that_no_machine_can_hold_is_an_error_at_once(runtime: Context) -> None:
    greedy = Counter.options(num_cpus=64).remote()
    with pytest.raises(exceptions.BiremeError, match="64"):
        bireme.get(greedy.add.remote())
