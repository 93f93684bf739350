"""Ctrl-C and other signals that reach a driver."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Program, await_condition, is_alive

PREPARE = """
    import os, sys, threading, time
    import bireme

    @bireme.remote
    def block():
        time.sleep(600)  # a task that is still running

    @bireme.remote
    class Actor:
        def block(self):
            time.sleep(600)  # a task that is still running
        def pid(self):
            return os.getpid()

    bireme.init(num_cpus=2)
    actor = Actor.remote()
    print(os.getpid(), bireme.get(actor.pid.remote()), flush=True)
"""

WAITS = {
    "get": "bireme.get(block.remote())",
    "get of many": "bireme.get([block.remote(), block.remote()])",
    "get with timeout": "bireme.get(block.remote(), timeout=600)",
    "wait": "bireme.wait([block.remote()])",
    "call": "bireme.get(actor.block.remote())",
    "future": "block.remote().future().result()",
    "asyncio": "import asyncio\n    async def main(): await block.remote()\n    asyncio.run(main())",
}


def read_pids(process: subprocess.Popen[str]) -> list[int]:
    assert process.stdout is not None
    return [int(pid) for pid in process.stdout.readline().split()]


def family_of(pid: int) -> set[int]:
    """A process and all that descend from it."""
    found, todo = {pid}, [pid]
    while todo:
        for task in Path(f"/proc/{todo.pop()}/task").glob("*/children"):
            children = [int(child) for child in task.read_text().split()]
            found.update(children)
            todo.extend(children)
    return found


def is_blocked(pid: int) -> bool:
    """Whether the main thread of a process sleeps in the kernel."""
    return Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS.keys())
def test_ctrl_c_ends_a_wait_at_once_and_leaves_nothing_behind(program: Program, wait: str) -> None:
    process = program.start(source=PREPARE + f"""
    print("waiting", flush=True)
    {wait}
    """)
    driver, _ = read_pids(process)
    assert process.stdout is not None and process.stdout.readline() == "waiting\n"
    await_condition(lambda: is_blocked(driver), "the driver to wait")
    family = family_of(driver)
    assert len(family) >= 3
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT, errors
    assert "KeyboardInterrupt" in errors
    await_condition(lambda: not any(is_alive(pid) for pid in family), "the end of all processes")


def go_on_after(program: Program, interrupt: Callable[[int, int], None], **options: Any) -> None:
    """A program that catches the interrupt of its wait still has its workers."""
    process = program.start(source=PREPARE + """
    print("waiting", flush=True)
    try:
        bireme.get(block.remote())
    except KeyboardInterrupt:
        print("interrupted", bireme.get(actor.pid.remote()), flush=True)
    """, **options)
    driver, worker = read_pids(process)
    assert process.stdout is not None and process.stdout.readline() == "waiting\n"
    await_condition(lambda: is_blocked(driver), "the driver to wait")
    interrupt(driver, signal.SIGINT)
    output, errors = process.communicate(timeout=30)
    assert (process.returncode, output) == (0, f"interrupted {worker}\n"), errors


def test_a_program_can_go_on_after_ctrl_c(program: Program) -> None:
    go_on_after(program, os.kill)


def test_ctrl_c_from_the_terminal_reaches_only_the_driver(program: Program) -> None:
    """The terminal signals a whole process group; workers are in another one."""
    go_on_after(program, os.killpg, start_new_session=True)


def test_ctrl_c_ends_the_main_thread_while_another_thread_waits(program: Program) -> None:
    process = program.start(source=PREPARE + """
    def other():
        try:
            bireme.get(block.remote())
        except bireme.exceptions.BiremeError as error:
            print("other:", type(error).__name__, flush=True)

    thread = threading.Thread(target=other)
    thread.start()
    print("waiting", flush=True)
    try:
        thread.join()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        bireme.shutdown()
        thread.join()
    """)
    driver, _ = read_pids(process)
    assert process.stdout is not None and process.stdout.readline() == "waiting\n"
    await_condition(lambda: is_blocked(driver), "the driver to wait")
    os.kill(driver, signal.SIGINT)
    output, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    first, second = output.splitlines()
    assert first == "interrupted" and second.startswith("other: ")


def test_a_handler_of_the_users_runs_during_a_wait(program: Program) -> None:
    process = program.start(source=PREPARE + """
    import signal
    ended = []
    signal.signal(signal.SIGUSR1, lambda *_: ended.append(1))
    signal.signal(signal.SIGUSR2, lambda *_: (_ for _ in ()).throw(LookupError("from the handler")))
    print("waiting", flush=True)
    try:
        bireme.get(block.remote())
    except LookupError as error:
        print(error, ended, flush=True)
    """)
    driver, _ = read_pids(process)
    assert process.stdout is not None and process.stdout.readline() == "waiting\n"
    await_condition(lambda: is_blocked(driver), "the driver to wait")
    os.kill(driver, signal.SIGUSR1)
    os.kill(driver, signal.SIGUSR2)
    output, errors = process.communicate(timeout=30)
    assert (process.returncode, output) == (0, "from the handler [1]\n"), errors


def test_sigterm_ends_a_driver_and_all_its_processes(program: Program) -> None:
    process = program.start(source=PREPARE + """
    bireme.get(block.remote())
    """)
    driver, _ = read_pids(process)
    family = family_of(driver)
    process.terminate()
    assert process.wait(timeout=30) == -signal.SIGTERM
    await_condition(lambda: not any(is_alive(pid) for pid in family), "the end of all processes")
