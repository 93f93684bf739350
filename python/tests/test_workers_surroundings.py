"""What a worker process finds around it: where modules are, how many threads it may use, and what `ps` shows of it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

import bireme

VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@pytest.fixture
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@bireme.remote
def threads() -> list[str | None]:
    return [os.environ.get(name) for name in VARIABLES]


@bireme.remote
class Worker:
    def threads(self) -> list[str | None]:
        return [os.environ.get(name) for name in VARIABLES]

    def shown(self) -> tuple[str, str]:
        return shown_here()


def shown_here() -> tuple[str, str]:
    """The name that `top` shows of this process, and the command that `ps` shows."""
    command = Path("/proc/self/cmdline").read_bytes().rstrip(b"\0").decode()
    return Path(f"/proc/self/task/{os.getpid()}/comm").read_text().rstrip("\n"), command


@bireme.remote
def shown() -> tuple[str, str]:
    return shown_here()


@bireme.remote
def own_copy(number: int) -> tuple[str, str]:
    return shown_here()


@pytest.mark.parametrize("runtime", [{"num_cpus": 4}], indirect=True)
def test_threads_follow_the_cpus_of_a_task_or_actor(no_variables: None, runtime: Any) -> None:
    for cpus, expected in [(1, "1"), (3, "3"), (0.5, "1"), (2.9, "2"), (1, "1"), (0, "1")]:
        assert bireme.get(threads.options(num_cpus=cpus).remote()) == [expected] * 3, cpus
    assert bireme.get(Worker.options(num_cpus=2).remote().threads.remote()) == ["2"] * 3
    assert bireme.get(Worker.remote().threads.remote()) == ["1"] * 3


def test_threads_that_the_user_chose_stay(no_variables: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with bireme.init(num_cpus=4):
        assert bireme.get(threads.options(num_cpus=3).remote()) == ["1", "3", "3"]
        chosen = threads.options(num_cpus=3, runtime_env={"env_vars": {"MKL_NUM_THREADS": "1"}})
        assert bireme.get(chosen.remote()) == ["1", "3", "1"]


@pytest.mark.parametrize("runtime", [{"num_cpus": 4}], indirect=True)
def test_threads_that_a_task_chose_in_its_process_stay_there(no_variables: None, runtime: Any) -> None:
    @bireme.remote
    class Chooser:
        def __init__(self) -> None:
            os.environ["OMP_NUM_THREADS"] = "7"

        def look(self) -> list[str | None]:
            return [os.environ.get(name) for name in VARIABLES]

    assert bireme.get(Chooser.options(num_cpus=2).remote().look.remote()) == ["7", "2", "2"]


def test_processes_show_what_they_run(runtime: Any) -> None:
    name, command = bireme.get(shown.remote())
    assert (name, command) == ("bireme::shown", "bireme::shown")
    # The kernel keeps 15 letters of the one, and what had room before of the other.
    name, command = bireme.get(own_copy.options(name="a rather long name of a task" * 50).remote(1))
    assert name == "bireme::a rather long name of a task"[:15]
    assert command.startswith("bireme::a rather long name of a task")
    for _ in range(3):
        assert bireme.get(own_copy.remote(1)) == ("bireme::own_cop", "bireme::own_copy")
        assert bireme.get(shown.remote()) == ("bireme::shown", "bireme::shown")
    actor = Worker.remote()
    assert bireme.get(actor.shown.remote()) == ("bireme::Worker", "bireme::Worker")


@pytest.fixture
def own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a test change `sys.path`."""
    monkeypatch.setattr(sys, "path", list(sys.path))


def module(folder: Path, name: str, source: str) -> str:
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(source)
    return str(folder)


def test_folders_added_before_init_are_found(own_path: None, tmp_path: Path) -> None:
    sys.path.insert(0, module(tmp_path / "a", "surroundings_a", "VALUE = 1"))

    @bireme.remote
    def use() -> int:
        import surroundings_a  # type: ignore[import-not-found]

        return int(surroundings_a.VALUE)

    with bireme.init(num_cpus=1):
        assert bireme.get(use.remote()) == 1


def test_folders_added_after_init_are_found(own_path: None, tmp_path: Path, runtime: Any) -> None:
    # Workers are there already.
    bireme.get([threads.remote() for _ in range(4)])
    first = module(tmp_path / "b", "surroundings_b", "class Thing:\n    def value(self):\n        return 2\n")
    sys.path.insert(0, first)
    import surroundings_b  # type: ignore[import-not-found]

    @bireme.remote
    def use(thing: Any) -> tuple[int, int]:
        return thing.value(), sys.path.index(first)

    @bireme.remote
    class User:
        def __init__(self) -> None:
            self.thing = surroundings_b.Thing()

        def value(self, thing: Any) -> int:
            return int(self.thing.value() + thing.value())

    thing = surroundings_b.Thing()
    # As an argument, as an object, in an actor, and in a task of a task.
    assert bireme.get(use.remote(thing)) == (2, 0)
    assert bireme.get(use.remote(bireme.put(thing))) == (2, 0)
    assert bireme.get(User.remote().value.remote(thing)) == 4

    @bireme.remote
    def nested() -> Any:
        return bireme.get(use.remote(surroundings_b.Thing()))

    assert bireme.get(nested.remote()) == (2, 0)


def test_a_function_that_was_sent_before_reads_values_of_a_new_folder(
    own_path: None, tmp_path: Path, runtime: Any
) -> None:
    @bireme.remote
    def value(thing: Any) -> int:
        return int(thing.value())

    class Plain:
        def value(self) -> int:
            return 1

    assert bireme.get(value.remote(Plain())) == 1
    sys.path.append(module(tmp_path / "c", "surroundings_c", "class Thing:\n    def value(self):\n        return 3\n"))
    import surroundings_c  # type: ignore[import-not-found]

    assert bireme.get(value.remote(surroundings_c.Thing())) == 3


def test_what_a_task_adds_to_its_path_stays_with_it(own_path: None, runtime: Any) -> None:
    before = list(sys.path)

    @bireme.remote
    def add() -> list[Any]:
        sys.path.append("/added/by/a/task")
        return [object]

    assert bireme.get(add.remote()) == [object]
    assert sys.path == before
