"""Runs the programs of this folder as users would and compares what they print with what they promise.

    python tests/programs/run.py [--slow] [--rust FOLDER] [NAME ...]

Each program runs twice: by itself (the engine inside of it), and as a driver of a cluster of two nodes on this machine; with
`--modes client` also as a program that joins such a cluster from a machine without a node. It fails by a wrong or
unexpected line of output, an exit code, a process, temporary file or shared memory that it leaves behind, or a hang. A program says in
comments what is expected of it:

    # expect: a line of standard output; `...` stands for any text, and lines are in order unless `# order: any` is there
    # modes: embedded, cluster     where it runs; both unless said
    # needs: torch                 a module without which it is left out, in the slow run only
    # slow: why                    left out unless --slow

Rust programs are the executables of FOLDER whose sources are in `rust/src/bin`.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
# For hangs alone: the slowest program takes a few seconds.
PROGRAM_S = 180
SETTLE_S = 60
MARK = "BIREME_PROGRAMS_MARK"


@dataclass
class Program:
    """One program and what it promises."""

    name: str
    command: list[str]
    expected: list[str]
    any_order: bool
    modes: list[str]
    needs: list[str]
    slow: bool

    @classmethod
    def read(cls, source: Path, command: list[str]) -> Program:
        """Reads the promises in the comments of a source file."""

        def values(key: str) -> list[str]:
            return re.findall(rf"^(?:#|//) {key}: (.*)$", source.read_text(), re.MULTILINE)

        words = {key: ",".join(values(key)).replace(",", " ").split() for key in ("modes", "needs")}
        return cls(
            name=f"{source.parent.name if source.suffix == '.py' else 'rust'}/{source.stem}",
            command=command,
            expected=values("expect"),
            any_order=values("order") == ["any"],
            modes=words["modes"] or ["embedded", "cluster"],
            needs=words["needs"],
            slow=bool(values("slow")) or bool(words["needs"]),
        )

    def judge(self, output: str) -> str | None:
        """Why the output is not the promised one."""
        lines = output.splitlines()
        patterns = [".*".join(map(re.escape, line.split("..."))) for line in self.expected]
        if self.any_order:
            lines, patterns = sorted(lines), sorted(patterns)
        if len(lines) == len(patterns) and all(map(re.fullmatch, patterns, lines)):
            return None
        expected = "\n    ".join(self.expected)
        return f"expected\n    {expected}\n  and it printed\n    " + "\n    ".join(output.splitlines())


def programs(rust: Path | None) -> list[Program]:
    """All programs, those in Rust when their executables are there."""
    found = [Program.read(source, [sys.executable, str(source)]) for source in sorted((HERE / "python").glob("*.py"))]
    if rust is not None:
        sources = sorted((HERE / "rust/src/bin").glob("*.rs"))
        found += [Program.read(source, [str(rust / f"program_{source.stem}")]) for source in sources]
    return found


def marked(mark: str) -> list[int]:
    """Processes whose environment has the mark."""
    wanted = f"{MARK}={mark}".encode()
    pids = []
    for entry in os.listdir("/proc"):
        if not entry.isdecimal() or int(entry) == os.getpid():
            continue
        try:
            state = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[0]
            if state != "Z" and wanted in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                pids.append(int(entry))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return pids


def describe(pids: list[int]) -> str:
    """Command lines of processes, for a person to read."""
    lines = []
    for pid in pids:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        lines.append(f"{pid} {words[:120]}")
    return "; ".join(lines)


def end(mark: str) -> None:
    """Ends processes with the mark."""
    for pid in marked(mark):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def settles(is_settled: Callable[[], bool]) -> bool:
    """Waits until the condition holds, for a while."""
    deadline = time.monotonic() + SETTLE_S
    while not is_settled():
        if time.monotonic() > deadline:
            return False
        select.select([], [], [], 0.02)
    return True


def shared_memory() -> set[str]:
    """Names in shared memory."""
    return set(os.listdir("/dev/shm"))


class Ground:
    """A folder of its own for whatever runs, with the environment that points there."""

    def __init__(self, mark: str, state: Path | None = None) -> None:
        # Short: Unix sockets lie below it.
        self.folder = Path(tempfile.mkdtemp(prefix="bp", dir="/tmp"))
        self.mark = mark
        self.temporary = self.folder / "tmp"
        self.home = self.folder / "home"
        self.state = state or self.folder / "state"
        for folder in (self.temporary, self.home):
            folder.mkdir(mode=0o700)

    def environment(self) -> dict[str, str]:
        """The environment of a program here."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("BIREME_", "XDG_"))}
        # Interpreters of notebooks and clusters are this one, wherever the user's environment points.
        path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
        return kept | {
            "PATH": path,
            "HOME": str(self.home),
            "TMPDIR": str(self.temporary),
            "BIREME_STATE_DIRECTORY": str(self.state),
            "BIREME_PYTHON": sys.executable,
            "PYTHONDONTWRITEBYTECODE": "1",
            "JUPYTER_PLATFORM_DIRS": "1",
            MARK: self.mark,
        }

    def left(self) -> list[str]:
        """Temporary files that are still there."""
        return sorted(str(path.relative_to(self.temporary)) for path in self.temporary.rglob("*"))

    def remove(self) -> None:
        """Removes the folder with all that is in it."""
        shutil.rmtree(self.folder)


def run(program: Program, ground: Ground, *arguments: str) -> str | None:
    """Runs a program once. Why it failed, or nothing."""
    try:
        done = subprocess.run(
            [*program.command, *arguments],
            env=ground.environment(),
            cwd=ground.temporary,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PROGRAM_S,
        )
    except subprocess.TimeoutExpired as late:
        said = [(stream or b"").decode(errors="replace") for stream in (late.stdout, late.stderr)]
        return f"it did not end within {PROGRAM_S} s; it printed\n{said[0]}\n{said[1]}"
    if done.returncode != 0:
        return f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    if done.stderr:
        return f"it printed to standard error\n{done.stderr}"
    return program.judge(done.stdout)


def run_embedded(program: Program) -> str | None:
    """Runs a program by itself; it must leave nothing."""
    ground = Ground(f"embedded-{os.getpid()}-{program.name}")
    before = shared_memory()
    failure = run(program, ground)
    if failure is None and not settles(lambda: not marked(ground.mark)):
        failure = f"processes are left: {describe(marked(ground.mark))}"
    end(ground.mark)
    if failure is None and ground.left():
        failure = f"temporary files are left: {ground.left()}"
    if failure is None and shared_memory() - before:
        failure = f"shared memory is left: {shared_memory() - before}"
    ground.remove()
    return failure


class Cluster:
    """Two nodes on this machine, which serve one program after another."""

    def __init__(self, is_attached: bool) -> None:
        self.ground = Ground(f"cluster-{os.getpid()}")
        self.is_attached = is_attached
        head = self.command("start", "--num-cpus", "1", "--resources", "slot=1", "--json")
        self.address = json.loads(head)["address"]
        self.command("start", "--address", self.address, "--num-cpus", "1", "--resources", "slot=1")
        self.idle = len(marked(self.ground.mark))

    def command(self, *words: str) -> str:
        """Runs a command of `bireme`, which must succeed."""
        done = subprocess.run(
            ["bireme", *words], env=self.ground.environment(), capture_output=True, text=True, timeout=PROGRAM_S
        )
        if done.returncode != 0:
            raise SystemExit(f"bireme {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def run(self, program: Program) -> str | None:
        """Runs a program as a job; processes, files and shared memory are those of before at its end."""
        before = shared_memory()
        ground = Ground(self.ground.mark, self.ground.state if self.is_attached else None)
        failure = run(program, ground, self.address)
        if failure is None and not settles(lambda: len(marked(self.ground.mark)) <= self.idle):
            failure = f"processes are left: {describe(marked(self.ground.mark))}"
        left = [*ground.left(), *self.ground.left()]
        if failure is None and left:
            failure = f"temporary files are left: {left}"
        if failure is None and shared_memory() - before:
            failure = f"shared memory is left: {shared_memory() - before}"
        ground.remove()
        return failure

    def end(self) -> str | None:
        """Stops both nodes. What is left of them."""
        self.command("stop", "--all")
        failure = None
        if not settles(lambda: not marked(self.ground.mark)):
            failure = f"processes are left: {describe(marked(self.ground.mark))}"
        end(self.ground.mark)
        self.ground.remove()
        return failure


def main() -> int:
    """Runs what the command line names, and prints a verdict."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--rust", type=lambda text: Path(text).resolve())
    parser.add_argument("--modes", default="embedded,cluster")
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    chosen = [program for program in programs(given.rust) if not given.names or {program.name, program.name.split("/")[1]} & {*given.names}]
    if not given.slow and not given.names:
        chosen = [program for program in chosen if not program.slow]
    for program in chosen:
        missing = [name for name in program.needs if importlib.util.find_spec(name) is None]
        if missing:
            raise SystemExit(f"{program.name} needs {', '.join(missing)}: install it")
    begun, passed, failed = time.monotonic(), 0, 0
    for mode in given.modes.split(","):
        cluster = None if mode == "embedded" else Cluster(is_attached=mode == "cluster")
        for program in chosen:
            if mode.replace("client", "cluster") not in program.modes:
                continue
            started = time.monotonic()
            failure = run_embedded(program) if cluster is None else cluster.run(program)
            passed, failed = passed + (failure is None), failed + (failure is not None)
            took = time.monotonic() - started
            print(f"{'ok    ' if failure is None else 'FAILED'} {mode} {program.name} {took:.1f} s", flush=True)
            if failure is not None:
                print("  " + failure.replace("\n", "\n  "), flush=True)
        if cluster is not None and (failure := cluster.end()) is not None:
            failed += 1
            print(f"FAILED {mode}: {failure}")
    print(f"{passed} passed, {failed} failed in {time.monotonic() - begun:.0f} s")
    return 0 if failed == 0 and passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
