"""Tasks and their processes: what one task changes in its process, no other task sees while it runs."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import bireme


@bireme.remote
def keep_a_mark(n: int) -> bool:
    os.environ["STEP"] = str(n)
    for _ in range(20):
        bireme.available_resources()
    return os.environ["STEP"] == str(n)


def test_a_task_finds_its_process_as_it_left_it() -> None:
    with bireme.init(num_cpus=1):
        kept = bireme.get([keep_a_mark.remote(n) for n in range(40)])
    assert kept == [True] * 40


@bireme.remote
def wait_with_a_mark(n: int, opened: list[bireme.ObjectRef[int]], gate: str | None) -> bool:
    os.environ["STEP"] = str(n)
    if gate:
        with open(gate, "w") as end:
            end.write("open")
    bireme.get(opened[0])
    return os.environ["STEP"] == str(n)


@bireme.remote(num_cpus=0)
def pass_gate(path: str) -> int:
    with open(path) as gate:
        gate.read()
    return 1


def test_tasks_that_wait_keep_their_processes(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with bireme.init(num_cpus=1):
        opened = pass_gate.remote(str(gate))
        # There is one CPU: when the last one runs, all others wait.
        waiting = [wait_with_a_mark.remote(n, [opened], str(gate) if n == 5 else None) for n in range(6)]
        kept = bireme.get(waiting)
    assert kept == [True] * 6


@bireme.remote
def nest(depth: int) -> tuple[int, ...]:
    os.environ["STEP"] = str(depth)
    below = bireme.get(nest.remote(depth - 1)) if depth else ()
    assert os.environ["STEP"] == str(depth)
    return (os.getpid(), *below)


def test_nested_tasks_have_a_process_each() -> None:
    with bireme.init(num_cpus=1):
        pids = bireme.get(nest.remote(9))
    assert len(set(pids)) == 10


@bireme.remote(threads_per_worker=4)
def nest_together(depth: int) -> tuple[int, ...]:
    below = bireme.get(nest_together.remote(depth - 1)) if depth else ()
    return (os.getpid(), *below)


def test_tasks_share_processes_when_they_are_told_to() -> None:
    with bireme.init(num_cpus=1):
        pids = bireme.get(nest_together.remote(11))
    assert len(pids) == 12
    assert max(Counter(pids).values()) <= 4
    assert len(set(pids)) < 12


@bireme.remote
class Desk:
    def first(self) -> int:
        return 1

    def second(self, value: int) -> int:
        return value + 1


@bireme.remote(threads_per_worker=32)
def child(desk: Any) -> int:
    return int(bireme.get(desk.first.remote()))


@bireme.remote(threads_per_worker=32)
def parent(desk: Any) -> int:
    return int(bireme.get(desk.second.remote(child.remote(desk))))


def test_a_call_that_waits_for_its_argument_holds_up_no_other_task_of_its_process() -> None:
    with bireme.init(num_cpus=2):
        desk = Desk.remote()
        assert bireme.get([parent.remote(desk) for _ in range(20)], timeout=60) == [2] * 20


NESTED = """
import bireme

@bireme.remote
def descend(depth):
    return depth if depth == 0 else bireme.get(descend.remote(depth - 1)) + 1

with bireme.init(num_cpus=1):
    print(bireme.get(descend.remote(4)))
"""


def test_tasks_that_share_a_process_at_the_limit_finish_with_one_warning(program: Any) -> None:
    output, errors = program.run(source=NESTED, env={"BIREME_PROCESSES_MAX": "2"})
    assert output.split() == ["4"]
    warnings = [line for line in errors.splitlines() if "worker processes of this node are taken" in line]
    assert len(warnings) == 1, errors
    for part in (
        "bireme: all 2 worker processes of this node are taken by actors and tasks that wait, so tasks share a process",
        "what one of them changes (environment, working directory, globals) the others see",
        "Allow more processes (workers_max, processes_max), or wait for fewer tasks inside tasks",
    ):
        assert part in warnings[0]
    assert program.run(source=NESTED, env={"BIREME_PROCESSES_MAX": "5"}) == ("4\n", "")


ACTOR_AT_THE_LIMIT = """
import bireme

@bireme.remote(num_cpus=0)
class Desk:
    def answer(self):
        return 7

@bireme.remote
def ask():
    desk = Desk.remote()
    return bireme.get(desk.answer.remote())

with bireme.init(num_cpus=1):
    print(bireme.get(ask.remote(), timeout=60))
"""


def test_an_actor_that_a_task_waits_for_gets_a_process_beyond_the_limit(program: Any) -> None:
    output, errors = program.run(source=ACTOR_AT_THE_LIMIT, env={"BIREME_PROCESSES_MAX": "1"})
    assert output.split() == ["7"]
    assert errors.count("beyond the limit of 1") == 1, errors
    assert program.run(source=ACTOR_AT_THE_LIMIT, env={"BIREME_PROCESSES_MAX": "2"}) == ("7\n", "")
