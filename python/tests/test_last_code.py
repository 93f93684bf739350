"""What the user's code does last in a worker: handlers of `atexit` and `__ray_shutdown__`, with a bound."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from conftest import Program, await_condition

import bireme


def _register(path: Path, text: str) -> None:
    import atexit

    def write() -> None:
        with open(path, "a") as file:
            file.write(f"{text}\n")

    atexit.register(write)


@bireme.remote
def register(path: Path, text: str) -> int:
    _register(path, text)
    return os.getpid()


@bireme.remote
class Keeper:
    def __init__(self, path: Path) -> None:
        self.path = path
        _register(path, "atexit")

    def __ray_shutdown__(self) -> None:
        with open(self.path, "a") as file:
            file.write("shutdown\n")

    def ready(self) -> bool:
        return True


@bireme.remote
class AsyncKeeper:
    def __init__(self, path: Path) -> None:
        self.path = path

    async def __ray_shutdown__(self) -> None:
        with open(self.path, "a") as file:
            file.write("shutdown\n")

    async def ready(self) -> bool:
        return True


@bireme.remote
def leave_a_pool_at_work(path: Path) -> None:
    import time
    from concurrent.futures import ThreadPoolExecutor

    def work() -> None:
        time.sleep(0.2)  # a task that is still running
        with open(path, "a") as file:
            file.write("pool\n")

    _register(path, "atexit")
    ThreadPoolExecutor(1).submit(work)


def test_pools_end_before_the_handlers_of_atexit_run_as_in_any_program(tmp_path: Path) -> None:
    path = tmp_path / "said"
    with bireme.init(num_cpus=1):
        bireme.get(leave_a_pool_at_work.remote(path))
    assert path.read_text().split() == ["pool", "atexit"]


@pytest.mark.parametrize("how", ["shutdown", "kill", "handle", "exit"])
@pytest.mark.parametrize("kind", [Keeper, AsyncKeeper])
def test_an_actor_says_goodbye_however_it_ends(tmp_path: Path, how: str, kind: Any) -> None:
    path = tmp_path / "said"
    expected = ["shutdown", "atexit"] if kind is Keeper else ["shutdown"]
    with bireme.init(num_cpus=1):
        keeper = kind.remote(path)
        assert bireme.get(keeper.ready.remote())
        if how == "kill":
            bireme.kill(keeper)
        elif how == "handle":
            del keeper
        elif how == "exit":
            keeper.__ray_terminate__.remote()
        if how != "shutdown":
            await_condition(lambda: path.exists() and len(path.read_text().split()) == len(expected), "its last words")
    assert path.read_text().split() == expected


def test_workers_for_tasks_run_their_exit_handlers_at_shutdown(tmp_path: Path) -> None:
    path = tmp_path / "said"
    with bireme.init(num_cpus=1):
        pid = bireme.get(register.remote(path, "bye"))
    assert path.read_text() == "bye\n"
    assert not Path(f"/proc/{pid}").exists()


def test_the_end_of_a_program_runs_them_too(program: Program) -> None:
    output, errors = program.run(source="""
    import atexit
    import bireme

    @bireme.remote
    def register():
        atexit.register(open, "said", "w")

    bireme.get(register.remote())
    """)
    assert (output, errors) == ("", "")
    assert (program.folder / "said").exists()


def test_a_handler_that_hangs_does_not_hold_the_shutdown_up_for_ever(tmp_path: Path) -> None:
    @bireme.remote
    def hang() -> int:
        import atexit
        import threading

        atexit.register(threading.Event().wait)
        return os.getpid()

    with bireme.init(num_cpus=1):
        pid = bireme.get(hang.remote())
    assert not Path(f"/proc/{pid}").exists()


def test_a_task_in_c_code_when_its_worker_is_told_to_end_has_the_time_of_a_task_and_not_of_the_last_code(tmp_path: Path) -> None:
    @bireme.remote
    def compute(begun: Path, said: Path) -> None:
        import time

        _register(said, "atexit")
        begun.touch()
        # Longer than a task has and shorter than its last code, with the interpreter's lock held throughout.
        end = time.monotonic() + 3
        any(map(end.__lt__, iter(time.monotonic, None)))

    begun, said = tmp_path / "begun", tmp_path / "said"
    with bireme.init(num_cpus=1):
        _running = compute.remote(begun, said)
        await_condition(begun.exists, "the task runs")
    assert not said.exists(), "it was killed before its code came to an end"


def test_joblib_in_tasks_leaves_nothing_in_shared_memory(tmp_path: Path) -> None:
    pytest.importorskip("joblib")
    numpy = pytest.importorskip("numpy")

    @bireme.remote
    def sums(count: int) -> tuple[int, float]:
        from joblib import Parallel, delayed

        array = numpy.ones(300_000)
        parts = Parallel(n_jobs=2, max_nbytes=1000)(delayed(numpy.sum)(array) for _ in range(count))
        return os.getpid(), float(sum(parts))

    with bireme.init(num_cpus=1):
        pid, total = bireme.get(sums.remote(4))
        assert total == 4 * 300_000

    def left() -> list[str]:
        return [name for name in os.listdir("/dev/shm") if f"-{pid}-" in name or f"_{pid}_" in name]

    # Joblib's own tracker removes some of it, a moment after the worker.
    await_condition(lambda: not left(), f"nothing of joblib in /dev/shm, and not {left()}")
