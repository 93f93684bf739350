"""`runtime_env`: what is checked at the caller's line, what a snapshot holds, what a worker gets."""

from __future__ import annotations

import importlib
import json
import os
import pickle
import subprocess
import sys
import types
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from bireme import _package
from bireme._environment import PackedEnvironment, RuntimeEnvironment
from bireme.exceptions import NotSupportedError, RuntimeEnvSetupError


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a module, a package, a file of values and what should stay behind."""
    folder = tmp_path / "project"
    (folder / "shapes" / "__pycache__").mkdir(parents=True)
    (folder / "shapes" / "__init__.py").write_text("SIDES = 4\n")
    (folder / "shapes" / "__pycache__" / "old.pyc").write_text("x")
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("x")
    (folder / "colours.py").write_text("RED = 'red'\n")
    (folder / "values.txt").write_text("1 2 3")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "noise.log").write_text("x" * 100)
    return folder


def in_a_worker(packed: PackedEnvironment, cache: Path, code: str) -> Any:
    """Applies the environment in a process of its own, as a worker does, and gives what `code` prints as JSON."""
    start = "import pickle, sys, os, json\npacked = pickle.loads(sys.stdin.buffer.read())"
    program = f"{start}\npacked.apply({str(cache)!r})\n{code}"
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=pickle.dumps(packed),
        capture_output=True,
        env={**os.environ, "BEFORE": "old"},
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def names_in(packed: PackedEnvironment) -> list[str]:
    assert packed.working_dir is not None
    with zipfile.ZipFile(__import__("io").BytesIO(packed.working_dir.archive)) as archive:
        return sorted(archive.namelist())


def test_a_worker_gets_variables_folder_and_modules(project: Path, tmp_path: Path) -> None:
    environment = RuntimeEnvironment.parse(
        {
            "env_vars": {"NEW": "1", "BEFORE": "${BEFORE}:more"},
            "working_dir": str(project),
            "py_modules": [str(project / "shapes")],
        }
    )
    seen = "os.environ['NEW'], os.environ['BEFORE'], open('values.txt').read(), shapes.SIDES, colours.RED"
    code = f"import shapes, colours\nprint(json.dumps([{seen}, os.access('run.sh', os.X_OK), os.getcwd()]))"
    new, before, values, sides, red, executable, folder = in_a_worker(environment.pack(), tmp_path / "cache", code)
    assert (new, before, values, sides, red, executable) == ("1", "old:more", "1 2 3", 4, "red", True)
    assert folder.startswith(str(tmp_path / "cache"))


@pytest.mark.parametrize("form", ["folder", "file", "zip", "wheel", "module", "package"])
def test_modules_come_in_every_form(form: str, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / ("m.whl" if form == "wheel" else "m.zip")
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("shapes/__init__.py", "SIDES = 4\n")
    monkeypatch.syspath_prepend(str(project))
    entry: Any = {"folder": project / "shapes", "file": project / "colours.py", "zip": archive, "wheel": archive}.get(
        form
    )
    if form == "module":
        entry = importlib.import_module("colours")
    if form == "package":
        entry = importlib.import_module("shapes")
    packed = RuntimeEnvironment.parse({"py_modules": [entry]}).pack()
    code = (
        "import colours\nprint(json.dumps(colours.RED))"
        if form in ("file", "module")
        else "import shapes\nprint(json.dumps(shapes.SIDES))"
    )
    assert in_a_worker(packed, tmp_path / "cache", code) in ("red", 4)


def test_an_archive_can_be_the_folder(tmp_path: Path) -> None:
    archive = tmp_path / "w.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("deep/values.txt", "7")
    packed = RuntimeEnvironment.parse({"working_dir": archive}).pack()
    assert in_a_worker(packed, tmp_path / "cache", "print(open('deep/values.txt').read())") == 7


def test_caches_repositories_and_what_is_excluded_stay_behind(project: Path) -> None:
    packed = RuntimeEnvironment.parse({"working_dir": str(project), "excludes": ["*.log", "shapes/"]}).pack()
    assert names_in(packed) == ["colours.py", "run.sh", "values.txt"]


def test_equal_content_has_one_name_whatever_its_times(project: Path) -> None:
    first = RuntimeEnvironment.parse({"working_dir": str(project)}).pack()
    os.utime(project / "values.txt", (1, 1))
    second = RuntimeEnvironment.parse({"working_dir": str(project)}).pack()
    assert first == second and first.key == second.key
    (project / "values.txt").write_text("4")
    third = RuntimeEnvironment.parse({"working_dir": str(project)}).pack()
    assert third.key != first.key
    assert RuntimeEnvironment.parse({"env_vars": {"A": "1"}}).pack().key != RuntimeEnvironment().pack().key


def test_a_package_is_unpacked_once_by_many_at_the_same_time(project: Path, tmp_path: Path) -> None:
    package = _package.pack_directory(str(project))
    with ThreadPoolExecutor(8) as threads:
        folders = set(threads.map(lambda _: _package.unpack(package, str(tmp_path / "cache")), range(32)))
    assert len(folders) == 1
    assert os.listdir(tmp_path / "cache") == [package.digest]


def test_links_that_go_in_a_circle_end(project: Path) -> None:
    (project / "again").symlink_to(project)
    (project / "nowhere").symlink_to(project / "missing")
    (project / "linked.txt").symlink_to(project / "values.txt")
    names = names_in(RuntimeEnvironment.parse({"working_dir": str(project)}).pack())
    assert "linked.txt" in names and not any(name.startswith("again") for name in names)


def test_a_folder_that_is_too_large_is_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_package, "PACKAGE_BYTES_MAX", 50)
    with pytest.raises(RuntimeEnvSetupError, match="limit.*excludes"):
        RuntimeEnvironment.parse({"working_dir": str(project)}).pack()
    assert (
        RuntimeEnvironment.parse({"working_dir": str(project), "excludes": ["*.log", "*.sh", "shapes"]})
        .pack()
        .working_dir
        is not None
    )


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ([], TypeError, ["runtime_env", "dictionary"]),
        ({"pip": ["numpy"]}, NotSupportedError, ["'pip'", "not supported yet"]),
        ({"conda": "x"}, NotSupportedError, ["'conda'"]),
        ({"uv": []}, NotSupportedError, ["'uv'"]),
        ({"container": {}}, NotSupportedError, ["'container'"]),
        ({"env_var": {}}, ValueError, ["'env_var'", "did you mean 'env_vars'"]),
        ({"whatever": 1}, ValueError, ["'whatever'", "working_dir"]),
        ({"env_vars": {"A": 1}}, TypeError, ["env_vars", "'A': 1"]),
        ({"env_vars": ["A"]}, TypeError, ["env_vars"]),
        ({"env_vars": {"A=B": "1"}}, ValueError, ["A=B"]),
        ({"working_dir": "/does/not/exist"}, RuntimeEnvSetupError, ["working_dir", "/does/not/exist"]),
        ({"working_dir": 3}, TypeError, ["working_dir"]),
        ({"working_dir": __file__}, RuntimeEnvSetupError, ["working_dir", "folder or a .zip"]),
        ({"working_dir": "s3://bucket/x.zip"}, NotSupportedError, ["s3://bucket"]),
        ({"py_modules": "shapes"}, TypeError, ["py_modules", "list"]),
        ({"py_modules": ["/does/not/exist"]}, RuntimeEnvSetupError, ["py_modules'][0]", "/does/not/exist"]),
        ({"py_modules": [sys]}, RuntimeEnvSetupError, ["'sys'"]),
        ({"py_modules": [types.ModuleType("made_up")]}, RuntimeEnvSetupError, ["'made_up'"]),
        ({"excludes": "x"}, TypeError, ["excludes"]),
    ],
)
def test_mistakes_raise_where_they_are_made(given: Any, error: type[Exception], words: list[str]) -> None:
    with pytest.raises(error) as caught:
        RuntimeEnvironment.parse(given)
    for word in words:
        assert word in str(caught.value)


def test_a_folder_that_went_away_is_an_error_of_packing(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    environment = RuntimeEnvironment.parse({"working_dir": str(folder)})
    folder.rmdir()
    with pytest.raises(RuntimeEnvSetupError, match="gone now"):
        environment.pack()


def test_an_archive_that_is_none_is_an_error_of_packing(tmp_path: Path) -> None:
    (tmp_path / "w.zip").write_text("no archive")
    with pytest.raises(RuntimeEnvSetupError, match="cannot be read"):
        RuntimeEnvironment.parse({"working_dir": str(tmp_path / "w.zip")}).pack()


def test_fields_of_ray_that_ask_for_nothing_are_taken() -> None:
    assert not RuntimeEnvironment.parse({"pip": None, "config": {"eager_install": True}, "working_dir": None})


def test_a_tasks_environment_adds_to_that_of_its_program(tmp_path: Path) -> None:
    program = RuntimeEnvironment.parse({"env_vars": {"A": "1", "B": "1"}, "working_dir": str(tmp_path)})
    task = RuntimeEnvironment.parse({"env_vars": {"B": "2"}}).over(program)
    assert task.as_dict() == {"env_vars": {"A": "1", "B": "2"}, "working_dir": str(tmp_path)}
    assert pickle.loads(pickle.dumps(task)) == task and hash(task) == hash(pickle.loads(pickle.dumps(task)))
