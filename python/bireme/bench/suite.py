"""One benchmark in the API that Bireme and Ray share, run on either: `suite.py --system bireme|ray ROW...`.

`bireme bench --python` starts this script once per row and reads its lines of JSON, one per round:
`{"system": ..., "row": ..., "ours": ..., "floor": ...}`. `ours` is the measure, `floor` what this machine does without
any engine, measured straight after it, or null where a row has none. Rows and their bars are judged by the caller. Both
systems are warm: the first round of everything does not count, but for the rows about a start.

The script is also run by interpreters in which the package is not installed, so it imports nothing of it.
"""

from __future__ import annotations

import argparse
import importlib
import json
import mmap
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

# What `init` needs beside the number of CPUs for a quiet node without a dashboard.
QUIET: dict[str, dict[str, Any]] = {
    # "local": not a cluster that happens to run on this machine.
    "ray": {"address": "local", "include_dashboard": False, "logging_level": "error"},
    "bireme": {},
}
CPUS = 2
# A round goes on for so long, so that a fast system is not measured by a handful of calls.
ROUND_SECONDS = 0.4
QUICK_SECONDS = 0.05
# The other side of something that never comes would otherwise hold the run up.
PATIENCE_SECONDS = 60.0


class Pair(NamedTuple):
    """One measurement, and the floor measured straight after it."""

    ours: float
    floor: float | None = None


Round = Callable[[], Pair]


class Suite:
    """What the rows share: the system under test and how much to measure."""

    def __init__(self, name: str, quick: bool) -> None:
        self.name = name
        self.quick = quick
        self.seconds = QUICK_SECONDS if quick else ROUND_SECONDS
        self.system: Any = None

    def load(self) -> Any:
        """Imports the system."""
        self.system = importlib.import_module(self.name)
        return self.system

    def start(self, **options: Any) -> Any:
        """Imports and starts the system; both CPUs have run a task before this returns."""
        system = self.load()
        system.init(num_cpus=CPUS, **QUIET[self.name], **options)
        task = system.remote(nothing)
        system.get([task.remote() for _ in range(100)])
        return system

    def size(self, full: int, quick: int) -> int:
        """How much: the first number, or the second when it should be quick."""
        return quick if self.quick else full

    def per_second(self, batch: Callable[[], object], count: int) -> float:
        """How often per second something happens that a batch does `count` times."""
        done, start = 0, time.perf_counter()
        while True:
            batch()
            done += count
            took = time.perf_counter() - start
            if took >= self.seconds:
                return done / took

    def median_us(self, call: Callable[[], object], calls_least: int = 200) -> float:
        """Median of the microseconds of single calls."""
        for _ in range(20):
            call()
        took: list[int] = []
        end = time.perf_counter() + self.seconds
        while len(took) < calls_least or time.perf_counter() < end:
            start = time.perf_counter_ns()
            call()
            took.append(time.perf_counter_ns() - start)
        return statistics.median(took) / 1e3


# What runs in workers.


def nothing() -> None:
    """An empty task."""


def count_arguments(*arguments: object) -> int:
    """A task with many arguments."""
    return len(arguments)


def attend(meeting: str) -> int:
    """Meets the driver, then waits until it says so: two of these need two workers."""
    with socket.socket(socket.AF_UNIX) as driver:
        driver.connect(meeting)
        driver.recv(1)
    return os.getpid()


class Cell:
    """An actor that answers."""

    def nothing(self) -> None:
        """An empty call."""

    def score(self, batch: Any) -> list[float]:
        """A model that has no opinion: one number per state."""
        return [0.0] * len(batch)

    def hold(self, size: int) -> None:
        """Keeps an array to be given away."""
        import numpy

        self.array = numpy.ones(size, dtype=numpy.uint8)

    def give(self) -> Any:
        """The array, as a new object."""
        return self.array


class AsyncCell:
    """An actor of coroutines."""

    async def nothing(self) -> None:
        """An empty call."""


# The rows.

FIRST_RESULT = """
import importlib, json, sys, time
system = importlib.import_module(sys.argv[1])
system.init(num_cpus=2, **json.loads(sys.argv[2]))
@system.remote
def first():
    return 1
assert system.get(first.remote()) == 1
print(time.monotonic(), flush=True)
system.shutdown()
"""


def first_result(suite: Suite) -> Round:
    """Seconds from the start of a process to the first result; the floor is an interpreter that says it is there."""

    def until_said(program: list[str]) -> float:
        start = time.monotonic()
        output = subprocess.run(program, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True).stdout
        return float(output.split()[-1]) - start

    def measure() -> Pair:
        options = json.dumps(QUIET[suite.name])
        ours = until_said([sys.executable, "-c", FIRST_RESULT, suite.name, options])
        return Pair(ours, until_said([sys.executable, "-c", "import time; print(time.monotonic())"]))

    return measure


def memory_at_rest(suite: Suite) -> Round:
    """MiB of all other processes of an idle runtime with two workers, and what the driver has grown by at `init`."""
    system = suite.load()

    def measure() -> Pair:
        before = pss_mib(os.getpid())
        system.init(num_cpus=CPUS, **QUIET[suite.name])
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as door:
            meeting = os.path.join(folder, "meeting")
            door.bind(meeting)
            door.listen()
            door.settimeout(PATIENCE_SECONDS)
            task = system.remote(attend)
            tasks = [task.remote(meeting) for _ in range(CPUS)]
            attendants = [door.accept()[0] for _ in range(CPUS)]
            for attendant in attendants:
                attendant.send(b"x")
                attendant.close()
            assert len(set(system.get(tasks))) == CPUS, "two tasks at the same time ran in one process"
        time.sleep(0.5)  # Idle: what the last task allocated for a moment is not what is measured.
        grown = pss_mib(os.getpid()) - before
        others = sum(pss_mib(process) for process in descendants(os.getpid()))
        system.shutdown()
        return Pair(others + grown)

    return measure


def task_sync(suite: Suite) -> Round:
    """Microseconds from the call of an empty task to its result."""
    system = suite.start()
    task = system.remote(nothing)
    return lambda: Pair(suite.median_us(lambda: system.get(task.remote())), ping_pong(suite))


def tasks_async(suite: Suite) -> Round:
    """Empty tasks per second: submit 10,000, then get all."""
    system = suite.start()
    task, count = system.remote(nothing), suite.size(10_000, 1_000)

    def batch() -> None:
        system.get([task.remote() for _ in range(count)])

    batch()
    return lambda: Pair(suite.per_second(batch, count))


def actor_sync(suite: Suite) -> Round:
    """Microseconds from the call of an actor to its result."""
    system = suite.start()
    cell = system.remote(Cell).remote()
    system.get(cell.nothing.remote())
    return lambda: Pair(suite.median_us(lambda: system.get(cell.nothing.remote())), ping_pong(suite))


def calls_of(suite: Suite, actor: type[Cell] | type[AsyncCell]) -> Round:
    """Calls per second from one caller to one actor: submit 10,000, then get all."""
    system = suite.start()
    cell, count = system.remote(actor).remote(), suite.size(10_000, 1_000)

    def batch() -> None:
        system.get([cell.nothing.remote() for _ in range(count)])

    batch()
    return lambda: Pair(suite.per_second(batch, count))


def actors_created(suite: Suite) -> Round:
    """Actors per second that are created and called once, 20 at a time."""
    system = suite.start()
    actor, count = system.remote(Cell).options(num_cpus=0), suite.size(20, 5)
    at_rest = len(descendants(os.getpid())) + CPUS

    def measure() -> Pair:
        start = time.perf_counter()
        cells = [actor.remote() for _ in range(count)]
        system.get([cell.nothing.remote() for cell in cells])
        took = time.perf_counter() - start
        for cell in cells:
            system.kill(cell)
        await_the_end_of_processes(at_rest)
        return Pair(count / took)

    measure()
    return measure


def put_small(suite: Suite) -> Round:
    """Values of 100 bytes per second that can be put."""
    system = suite.start()
    value, count = b"x" * 100, suite.size(5_000, 500)

    def batch() -> None:
        for _ in range(count):
            system.put(value)

    batch()
    return lambda: Pair(suite.per_second(batch, count))


def put_warm(suite: Suite) -> Round:
    """GB/s of a `put` of 1 GiB into pages that were used before; the floor is a numpy copy, pages present."""
    import numpy

    system = suite.start()
    size = suite.size(1 << 30, 64 << 20)
    source, target = numpy.ones(size, dtype=numpy.uint8), numpy.ones(size, dtype=numpy.uint8)

    def gigabytes_per_second(call: Callable[[], object]) -> float:
        start = time.perf_counter()
        result = call()
        took = time.perf_counter() - start
        del result
        return size / took / 1e9

    def measure() -> Pair:
        ours = gigabytes_per_second(lambda: system.put(source))
        return Pair(ours, gigabytes_per_second(lambda: numpy.copyto(target, source)))

    for _ in range(3):
        measure()
    return measure


def get_zero_copy(suite: Suite) -> Round:
    """Microseconds of a `get` of 1 GiB."""
    import numpy

    system = suite.start()
    reference = system.put(numpy.ones(suite.size(1 << 30, 64 << 20), dtype=numpy.uint8))
    return lambda: Pair(suite.median_us(lambda: system.get(reference)))


def get_read(suite: Suite) -> Round:
    """Milliseconds to touch each page of 1 GiB that another process made, where earlier objects were read.

    The floor is private memory in pages of the same size: numpy's own arrays may lie in huge pages.
    """
    import numpy

    size = suite.size(1 << 30, 64 << 20)
    # Room for three, so that a few objects have been everywhere and the next lie where one was read before.
    system = suite.start(object_store_memory=3 * size + size // 2)
    private = numpy.frombuffer(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), dtype=numpy.uint8)
    private[:] = 1
    cell = system.remote(Cell).remote()
    system.get(cell.hold.remote(size))

    def touch_ms(array: Any) -> float:
        start = time.perf_counter()
        touched = int(array[::4096].sum())
        took = time.perf_counter() - start
        assert touched == size // 4096, "an object has other bytes than were written"
        return took * 1e3

    def measure() -> Pair:
        return Pair(touch_ms(system.get(cell.give.remote())), touch_ms(private))

    for _ in range(8):
        measure()
    return measure


def wait_each(suite: Suite) -> Round:
    """Milliseconds to submit 1,000 tasks and wait for one at a time."""
    system = suite.start()
    task, count = system.remote(nothing), suite.size(1_000, 100)

    def measure() -> Pair:
        start = time.perf_counter()
        left = [task.remote() for _ in range(count)]
        while left:
            _, left = system.wait(left)
        return Pair((time.perf_counter() - start) * 1e3)

    measure()
    return measure


def ref_arguments(suite: Suite) -> Round:
    """Milliseconds for a task with 10,000 references as arguments."""
    system = suite.start()
    task, count = system.remote(count_arguments), suite.size(10_000, 1_000)
    references = [system.put(number) for number in range(count)]

    def measure() -> Pair:
        start = time.perf_counter()
        assert system.get(task.remote(*references)) == count
        return Pair((time.perf_counter() - start) * 1e3)

    measure()
    return measure


def states(suite: Suite, state_bytes: int) -> Round:
    """States per second to an actor, 64 in a batch, one batch at a time; the floor copies as much with numpy."""
    import numpy

    system = suite.start()
    cell = system.remote(Cell).remote()
    batch = numpy.zeros((64, state_bytes), dtype=numpy.uint8)
    target = numpy.ones_like(batch)

    def serve() -> None:
        system.get(cell.score.remote(batch))

    for _ in range(20):
        serve()
    return lambda: Pair(
        suite.per_second(serve, len(batch)), suite.per_second(lambda: numpy.copyto(target, batch), len(batch))
    )


ROWS: dict[str, Callable[[Suite], Round]] = {
    "first_result": first_result,
    "memory_at_rest": memory_at_rest,
    "task_sync": task_sync,
    "tasks_async": tasks_async,
    "actor_sync": actor_sync,
    "actor_async": lambda suite: calls_of(suite, Cell),
    "async_actor": lambda suite: calls_of(suite, AsyncCell),
    "actors_created": actors_created,
    "put_small": put_small,
    "put_warm": put_warm,
    "get_zero_copy": get_zero_copy,
    "get_read": get_read,
    "wait_each": wait_each,
    "ref_arguments": ref_arguments,
    "states_4kb": lambda suite: states(suite, 4_096),
    "states_100kb": lambda suite: states(suite, 102_400),
}


# The machine without any engine.


def ping_pong(suite: Suite) -> float:
    """Median of the microseconds of a blocking round trip between two interpreters over a Unix socket."""
    program = [sys.executable, __file__, "--ping-pong", "--system", suite.name] + ["--quick"] * suite.quick
    output = subprocess.run(program, stdout=subprocess.PIPE, text=True, timeout=PATIENCE_SECONDS, check=True).stdout
    return float(output)


def ping_pong_here(suite: Suite) -> float:
    """The same, with a child of this process; each side on a core of its own, since placement changes it fivefold."""
    cores = sorted(os.sched_getaffinity(0))
    here, there = socket.socketpair()
    if os.fork() == 0:
        here.close()
        os.sched_setaffinity(0, {cores[-1]})
        while message := there.recv(64):
            there.sendall(message)
        os._exit(0)
    there.close()
    os.sched_setaffinity(0, {cores[0]})

    def there_and_back() -> None:
        here.sendall(b"x" * 32)
        here.recv(64)

    median = suite.median_us(there_and_back)
    here.close()
    os.wait()
    return median


def pss_mib(process: int) -> float:
    """The memory of a process, shared pages by their share; nothing when it has ended."""
    try:
        with open(f"/proc/{process}/smaps_rollup", encoding="ascii") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
    except (FileNotFoundError, ProcessLookupError, StopIteration):
        return 0.0


def descendants(ancestor: int) -> list[int]:
    """All processes below one, at any depth."""
    children: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as stat:
                # The name before is in parentheses and may hold anything.
                state, parent = stat.read().rpartition(")")[2].split()[:2]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state != "Z":
            children.setdefault(int(parent), []).append(int(name))
    found = [ancestor]
    for process in found:
        found.extend(children.get(process, []))
    return found[1:]


def await_the_end_of_processes(count: int) -> None:
    """Waits, for a while, until this process has no more than so many others below it."""
    end = time.monotonic() + 5.0
    while len(descendants(os.getpid())) > count and time.monotonic() < end:
        time.sleep(0.02)


def main() -> None:
    """Measures the rows that the command line names."""
    parser = argparse.ArgumentParser(description="One benchmark for Bireme and Ray: lines of JSON, one per round.")
    parser.add_argument("rows", nargs="*", choices=[*ROWS, []], metavar="ROW", help="all unless named")
    parser.add_argument("--system", choices=sorted(QUIET), required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="measure less; figures say little")
    parser.add_argument("--ping-pong", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    suite = Suite(arguments.system, arguments.quick)
    if arguments.ping_pong:
        print(ping_pong_here(suite))
        return
    for row in arguments.rows or ROWS:
        measure = ROWS[row](suite)
        for _ in range(arguments.rounds):
            line = {"system": suite.name, "row": row, **measure()._asdict()}
            print(json.dumps(line), flush=True)
        if suite.system is not None:
            suite.system.shutdown()


if __name__ == "__main__":
    main()
