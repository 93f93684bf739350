"""`runtime_env` on a running runtime: per job, per task, per actor."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

import bireme
from bireme import exceptions
from bireme.context import Context


@bireme.remote
def variable(name: str) -> str | None:
    return os.environ.get(name)


@bireme.remote
def read_file(name: str) -> str:
    return Path(name).read_text()


@bireme.remote
def imported(name: str) -> Any:
    module = __import__(name)
    return module.VALUE


@bireme.remote
class Probe:
    def variable(self, name: str) -> str | None:
        return os.environ.get(name)

    def folder(self) -> str:
        return os.getcwd()


def with_variables(**variables: str) -> dict[str, Any]:
    return {"env_vars": variables}


def test_a_task_has_its_variables_and_others_do_not(runtime: Context) -> None:
    special = variable.options(runtime_env=with_variables(FLAVOUR="mint"))
    assert bireme.get([special.remote("FLAVOUR"), variable.remote("FLAVOUR")]) == ["mint", None]
    other = variable.options(runtime_env=with_variables(FLAVOUR="lemon"))
    found = bireme.get([task.remote("FLAVOUR") for task in (special, other) * 5])
    assert found == ["mint", "lemon"] * 5
    assert "FLAVOUR" not in os.environ


def test_an_actor_has_its_variables(runtime: Context) -> None:
    probe = Probe.options(runtime_env=with_variables(FLAVOUR="mint")).remote()
    plain = Probe.remote()
    assert bireme.get([probe.variable.remote("FLAVOUR"), plain.variable.remote("FLAVOUR")]) == ["mint", None]


@pytest.mark.parametrize("runtime", [{"runtime_env": {"env_vars": {"FLAVOUR": "job", "SIZE": "5"}}}], indirect=True)
def test_a_job_has_variables_that_tasks_can_override(runtime: Context) -> None:
    special = variable.options(runtime_env=with_variables(FLAVOUR="task"))
    assert bireme.get([variable.remote("FLAVOUR"), special.remote("FLAVOUR")]) == ["job", "task"]
    assert bireme.get([variable.remote("SIZE"), special.remote("SIZE")]) == ["5", "5"]
    assert bireme.get(Probe.remote().variable.remote("FLAVOUR")) == "job"


def test_children_inherit_the_environment(runtime: Context) -> None:
    @bireme.remote
    def parent(name: str) -> list[str | None]:
        probe = Probe.remote()
        return bireme.get([variable.remote(name), probe.variable.remote(name)])

    special = parent.options(runtime_env=with_variables(FLAVOUR="mint"))
    assert bireme.get(special.remote("FLAVOUR")) == ["mint", "mint"]


def test_the_environment_of_a_child_adds_to_that_of_its_parent(runtime: Context, tmp_path: Path) -> None:
    @bireme.remote
    def ask(name: str) -> tuple[str | None, str | None, bool]:
        return os.environ.get("FLAVOUR"), os.environ.get("SIZE"), Path(name).exists()

    @bireme.remote
    def parent(name: str) -> Any:
        return bireme.get(ask.options(runtime_env=with_variables(SIZE="5")).remote(name))

    (tmp_path / "words.txt").touch()
    special = parent.options(runtime_env={"working_dir": str(tmp_path), **with_variables(FLAVOUR="mint")})
    assert bireme.get(special.remote("words.txt")) == ("mint", "5", True)


def test_a_variable_can_use_what_is_there(runtime: Context) -> None:
    special = variable.options(runtime_env=with_variables(LONGER_PATH="/first:${PATH}"))
    assert bireme.get(special.remote("LONGER_PATH")) == f"/first:{os.environ['PATH']}"


def test_a_working_directory_is_a_copy_that_code_runs_in(runtime: Context, tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "words.txt").write_text("some words")
    (tmp_path / "at_hand.py").write_text("VALUE = 'from the folder'")
    environment = {"working_dir": str(tmp_path)}
    assert bireme.get(read_file.options(runtime_env=environment).remote("inner/words.txt")) == "some words"
    assert bireme.get(imported.options(runtime_env=environment).remote("at_hand")) == "from the folder"
    probe = Probe.options(runtime_env=environment).remote()
    assert bireme.get(probe.folder.remote()) != str(tmp_path)
    with pytest.raises(FileNotFoundError):
        bireme.get(read_file.remote("inner/words.txt"))


def test_modules_travel(runtime: Context, tmp_path: Path) -> None:
    package = tmp_path / "travelling"
    package.mkdir()
    (package / "__init__.py").write_text("from .inner import VALUE")
    (package / "inner.py").write_text("VALUE = 7")
    environment = {"py_modules": [str(package)]}
    assert bireme.get(imported.options(runtime_env=environment).remote("travelling")) == 7
    with pytest.raises(ModuleNotFoundError):
        bireme.get(imported.remote("travelling"))
    assert "travelling" not in sys.modules


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ({"env_var": {}}, "env_vars"),
        ({"env_vars": {"A": 1}}, "A"),
        ({"working_dir": "/no/such/folder"}, "/no/such/folder"),
        ({"py_modules": ["/no/such/module"]}, "/no/such/module"),
        ({"pip": ["numpy"]}, "pip"),
        ("env", "runtime_env"),
    ],
)
def test_wrong_environments_are_errors_at_the_callers_line(runtime: Context, environment: Any, text: str) -> None:
    kinds = (TypeError, ValueError, NotImplementedError, exceptions.BiremeError)
    for target in (variable, Probe):
        with pytest.raises(kinds, match=text):
            target.options(runtime_env=environment)
    assert bireme.get(variable.remote("PATH")) == os.environ["PATH"]


def test_an_environment_that_cannot_be_set_up_is_an_error_of_the_task(runtime: Context, tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    special = variable.options(runtime_env={"working_dir": str(folder)})
    folder.rmdir()
    with pytest.raises((exceptions.RuntimeEnvSetupError, FileNotFoundError, ValueError), match="gone"):
        bireme.get(special.remote("PATH"))
    assert bireme.get(variable.remote("PATH")) == os.environ["PATH"]


def test_processes_are_used_again_by_the_same_environment(runtime: Context) -> None:
    @bireme.remote
    def pid() -> int:
        return os.getpid()

    special = pid.options(runtime_env=with_variables(FLAVOUR="mint"))
    pids = {bireme.get(special.remote()) for _ in range(5)}
    plain = {bireme.get(pid.remote()) for _ in range(5)}
    assert not pids & plain
    assert len(pids) <= 2
