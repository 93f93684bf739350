"""Fixtures of all tests, and the check after each one that nothing is left behind."""

from __future__ import annotations

import gc
import glob
import os
import select
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import bireme

PACKAGES = str(Path(bireme.__file__).resolve().parent.parent)
# How long to wait for something that must happen; never reached by a test that passes.
PATIENCE_S = 20.0

# A shell lets what it runs in the background ignore Ctrl-C, and so would every program that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)


class Belongings(NamedTuple):
    """What this process has of the kinds that a runtime could leave behind."""

    children: frozenset[str]
    descriptors: frozenset[tuple[str, str]]
    mappings: frozenset[str]
    threads: frozenset[str]
    scratch: frozenset[str]

    @classmethod
    def now(cls) -> "Belongings":
        """Reads them from the system."""
        return cls(_children(), _descriptors(), _mappings(), _threads(), _scratch())

    def beyond(self, before: "Belongings") -> dict[str, list[Any]]:
        """What is here and was not before, by kind."""
        kinds = zip(self._fields, self, before, strict=True)
        return {kind: sorted(mine - theirs) for kind, mine, theirs in kinds if mine - theirs}


def _children() -> frozenset[str]:
    """Processes that this one started, and theirs that it inherited."""
    found = []
    for task in os.listdir("/proc/self/task"):
        try:
            for pid in Path(f"/proc/self/task/{task}/children").read_text().split():
                found.append(f"{pid} {Path(f'/proc/{pid}/cmdline').read_text()[:80]!r}")
        except (FileNotFoundError, ProcessLookupError):
            continue
    return frozenset(found)


def _descriptors() -> frozenset[tuple[str, str]]:
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            found.append((number, os.readlink(f"/proc/self/fd/{number}")))
        except FileNotFoundError:
            continue
    # The standard streams change hands under pytest, and the listing itself has one open.
    return frozenset((number, target) for number, target in found if "/proc/" not in target and int(number) > 2)


def _mappings() -> frozenset[str]:
    lines = Path("/proc/self/maps").read_text().splitlines()
    return frozenset(line for line in lines if "memfd:" in line or "/dev/shm" in line)


def _threads() -> frozenset[str]:
    found = {f"{thread.name} {thread.ident}" for thread in threading.enumerate()}
    for task in os.listdir("/proc/self/task"):
        try:
            name = Path(f"/proc/self/task/{task}/comm").read_text().strip()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if name.startswith("bireme"):
            found.add(f"{name} {task}")
    # One thread of the package serves futures for the whole life of the program.
    return frozenset(thread for thread in found if not thread.startswith("bireme-futures"))


def _scratch() -> frozenset[str]:
    return frozenset(glob.glob(os.path.join(tempfile.gettempdir(), f"bireme-{os.getpid()}-*")))


def await_condition(holds: Callable[[], Any], what: str, patience_s: float = PATIENCE_S) -> Any:
    """Asks again and again until the answer is true, and gives it; fails after a long time."""
    deadline = time.monotonic() + patience_s
    while not (answer := holds()):
        if time.monotonic() > deadline:
            pytest.fail(f"waited {patience_s:.0f} s in vain: {what}")
        select.select([], [], [], 0.002)
    return answer


def is_alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def await_end(pid: int) -> None:
    """Waits until a process is gone."""
    await_condition(lambda: not is_alive(pid), f"the end of process {pid}")


_failed = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Notes for `no_leaks` that the test has failed."""
    report = yield
    if report.failed:
        item.stash[_failed] = True
    return report


@pytest.fixture(autouse=True)
def no_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that leaves a runtime, a process, a descriptor, shared memory, a thread or a scratch folder."""
    before = Belongings.now()
    yield
    was_running = bireme.is_initialized()
    bireme.shutdown()
    gc.collect()
    if request.node.stash.get(_failed, False):
        # Its traceback keeps what it had.
        return
    left: dict[str, list[Any]] = Belongings.now().beyond(before)
    deadline = time.monotonic() + PATIENCE_S / 2
    while left and time.monotonic() < deadline:
        # Threads and descriptors go a moment after what ended them.
        select.select([], [], [], 0.005)
        left = Belongings.now().beyond(before)
    assert not left, f"left behind by the test: {left}"
    assert not was_running, "the test did not shut the runtime down; use the fixture `runtime`"


@pytest.fixture
def runtime(request: pytest.FixtureRequest) -> Iterator[bireme.context.Context]:
    """A fresh runtime with two CPUs; ``@pytest.mark.parametrize("runtime", [{...}], indirect=True)`` for other options."""
    options = {"num_cpus": 2, **getattr(request, "param", {})}
    context = bireme.init(**options)
    yield context
    bireme.shutdown()


class Program:
    """A program in a process of its own, as a user would start it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._count = 0
        self.started: list[subprocess.Popen[str]] = []

    def write(self, source: str, name: str = "") -> Path:
        """Writes a file of the program."""
        self._count += 1
        path = self.folder / (name or f"program_{self._count}.py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source))
        return path

    def start(self, *arguments: str, source: str | None = None, **options: Any) -> subprocess.Popen[str]:
        """Starts Python with these arguments, or with a program."""
        if source is not None:
            arguments = (str(self.write(source)), *arguments)
        environment = {**os.environ, "PYTHONPATH": PACKAGES, **options.pop("env", {})}
        settings: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
            "cwd": self.folder,
            "env": environment,
            **options,
        }
        process = subprocess.Popen([sys.executable, "-W", "error", *arguments], **settings)
        self.started.append(process)
        return process

    def run(self, *arguments: str, source: str | None = None, input: str | None = None, **options: Any) -> tuple[str, str]:
        """Runs Python until it ends well, and gives what it printed: standard output, standard error."""
        if input is not None:
            options["stdin"] = subprocess.PIPE
        process = self.start(*arguments, source=source, **options)
        output, errors = process.communicate(input, timeout=60)
        assert process.returncode == 0, f"exit code {process.returncode}\n{output}\n{errors}"
        return output, errors


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    """Runs programs in processes of their own."""
    program = Program(tmp_path)
    yield program
    for process in program.started:
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder with a short name: the sockets of nodes are in it, and their paths have 107 letters at most."""
    with tempfile.TemporaryDirectory(prefix="bt-", dir="/tmp") as folder:
        yield Path(folder)
