"""Processes that were forked from a driver."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import Program, await_end

import bireme
from bireme import exceptions
from bireme.context import Context


@bireme.remote
def add(a: int, b: int) -> int:
    return a + b


@bireme.remote
class Counter:
    def __init__(self) -> None:
        self.total = 0

    def add(self) -> int:
        self.total += 1
        return self.total


def in_a_fork(body: Any) -> str:
    """What `body` returns in a forked child, as text."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.write(write, str(body()).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read) as stream:
        text = stream.read()
    _, status = os.waitpid(pid, 0)
    assert status == 0, f"the child ended with {status}: {text}"
    return text


def refusal(use: Any) -> str:
    try:
        use()
    except exceptions.ForkedProcessError as error:
        return str(error)
    return "no error"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_every_use_in_a_forked_child_is_a_clear_error(runtime: Context) -> None:
    ref, counter = bireme.put([1, 2]), Counter.remote()
    bireme.get(counter.add.remote())
    uses = {
        "get": lambda: bireme.get(ref),
        "put": lambda: bireme.put(1),
        "wait": lambda: bireme.wait([ref]),
        "task": lambda: add.remote(1, 2),
        "call": lambda: counter.add.remote(),
        "start": lambda: Counter.remote(),
        "kill": lambda: bireme.kill(counter),
        "cancel": lambda: bireme.cancel(ref),
        "resources": lambda: bireme.cluster_resources(),
    }
    answers = in_a_fork(lambda: "\n".join(f"{name}: {refusal(use)}" for name, use in uses.items()))
    for line in answers.splitlines():
        assert "fork" in line, line
    assert bireme.get(ref) == [1, 2]
    assert bireme.get([add.remote(1, 2), counter.add.remote()]) == [3, 2]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_references_that_go_in_a_child_do_nothing(runtime: Context) -> None:
    ref, counter = bireme.put(bytes(1_000_000)), Counter.remote()
    value = bireme.get(ref)
    held: dict[str, Any] = {"ref": ref, "counter": counter, "value": value}
    del ref, counter, value

    def let_go() -> str:
        held.clear()
        bireme.shutdown()
        return "gone"

    assert in_a_fork(let_go) == "gone"
    assert len(bireme.get(held["ref"])) == 1_000_000
    assert bireme.get(held["counter"].add.remote()) == 1


def _in_a_pool(n: int) -> str:
    return f"{n} {refusal(lambda: bireme.put(1))}"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_multiprocessing_beside_the_runtime_works(runtime: Context) -> None:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        answers = pool.map(_in_a_pool, range(4))
        pool.close()
        pool.join()
    assert all("fork" in answer for answer in answers)
    assert bireme.get(add.remote(1, 2)) == 3


def test_a_child_that_ends_normally_does_not_end_the_runtime(program: Program) -> None:
    output, errors = program.run(source="""
    import os, sys
    import bireme

    @bireme.remote
    def add(a, b):
        return a + b

    bireme.init(num_cpus=1)
    ref = bireme.put(5)
    pid = os.fork()
    if pid == 0:
        sys.exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    print(bireme.get(add.remote(ref, 1)))
    """)
    assert (output, errors) == ("6\n", "")


def test_tasks_may_fork(runtime: Context) -> None:
    @bireme.remote
    def fork() -> int:
        pid = os.fork()
        if pid == 0:
            os._exit(5)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    @bireme.remote
    def pool() -> list[int]:
        with multiprocessing.get_context("fork").Pool(1) as pool:
            answers = pool.map(abs, [-1, -2])
            pool.close()
            pool.join()
            return answers

    assert bireme.get(fork.remote()) == 5
    assert bireme.get(pool.remote()) == [1, 2]


def _exit_code_of_child(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("runtime", [{"num_cpus": 1}], indirect=True)
def test_a_fork_that_comes_to_the_end_of_its_task_ends_there(runtime: Context, tmp_path: Path) -> None:
    log = tmp_path / "log"

    @bireme.remote
    def task(how: str) -> Any:
        pid = os.fork()
        if pid == 0:
            with open(log, "a") as file:
                file.write(f"{how}\n")
            if how == "raise":
                raise ValueError("the child failed")
            if how == "exit":
                sys.exit(7)
            return "the child's"
        return _exit_code_of_child(pid)

    @bireme.remote
    def items() -> Any:
        pid = os.fork()
        yield "first"
        yield _exit_code_of_child(pid) if pid else "the child's"

    @bireme.remote
    class Plain:
        def __init__(self) -> None:
            pid = os.fork()
            self.code = _exit_code_of_child(pid) if pid else None

        def codes(self, raises: bool) -> Any:
            pid = os.fork()
            if pid == 0:
                if raises:
                    raise ValueError("the child failed")
                return "the child's"
            return self.code, _exit_code_of_child(pid)

    @bireme.remote
    class Async:
        async def code(self, raises: bool) -> Any:
            pid = os.fork()
            if pid == 0:
                if raises:
                    raise ValueError("the child failed")
                return "the child's"
            return _exit_code_of_child(pid)

        async def items(self) -> Any:
            pid = os.fork()
            yield "first"
            yield _exit_code_of_child(pid) if pid else "the child's"

    expected = {"return": 0, "raise": 1, "exit": 7}
    for how, code in expected.items():
        assert bireme.get(task.remote(how)) == code
        # The same worker, and no other process that takes its tasks.
        assert bireme.get([add.remote(n, 1) for n in range(50)]) == list(range(1, 51))
    assert log.read_text().split() == list(expected)
    assert [bireme.get(item) for item in items.remote()] == ["first", 0]
    plain = Plain.remote()
    assert bireme.get([plain.codes.remote(False), plain.codes.remote(True)]) == [(0, 0), (0, 1)]
    bireme.kill(plain)
    other = Async.remote()
    assert bireme.get([other.code.remote(False), other.code.remote(True)]) == [0, 1]
    assert [bireme.get(item) for item in other.items.remote()] == ["first", 0]


def test_threads_of_the_runtime_block_signals(runtime: Context) -> None:
    bireme.get(add.remote(1, 2))
    checked = 0
    for task in os.listdir("/proc/self/task"):
        status = Path(f"/proc/self/task/{task}/status").read_text()
        fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        if fields["Name"].strip().startswith("bireme"):
            blocked = int(fields["SigBlk"], 16)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
                assert blocked & 1 << (number - 1), f"{fields['Name']} takes {number.name}"
            checked += 1
    assert checked >= 2


def test_workers_are_in_another_process_group(runtime: Context) -> None:
    @bireme.remote
    def group() -> tuple[int, int]:
        return os.getpgrp(), os.getppid()

    found, parent = bireme.get(group.remote())
    assert found != os.getpgrp()
    assert os.getpgid(parent) != os.getpgrp()


def test_workers_do_not_share_random_numbers(runtime: Context) -> None:
    @bireme.remote
    class Dice:
        def roll(self) -> float:
            import random

            return random.random()

    dice = [Dice.remote() for _ in range(3)]
    assert len(set(bireme.get([each.roll.remote() for each in dice]))) == 3


def test_workers_end_when_their_driver_is_killed(program: Program) -> None:
    process = program.start(source="""
    import os, threading
    import bireme

    @bireme.remote
    class Pid:
        def get(self):
            return os.getpid(), os.getppid()

    actor = Pid.remote()
    print(*bireme.get(actor.get.remote()), flush=True)
    threading.Event().wait()
    """)
    assert process.stdout is not None
    pids = [int(pid) for pid in process.stdout.readline().split()]
    assert len(pids) == 2
    process.kill()
    for pid in pids:
        await_end(pid)
