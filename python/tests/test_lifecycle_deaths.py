"""Workers that die: what their errors say."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

import bireme
from bireme import exceptions
from bireme.context import Context


@bireme.remote
def add(a: int, b: int) -> int:
    return a + b


def test_an_exit_code_is_in_the_error(runtime: Context) -> None:
    @bireme.remote(max_retries=0)
    def leave() -> None:
        print("about to leave", file=sys.stderr)
        os._exit(42)

    with pytest.raises(exceptions.WorkerCrashedError) as caught:
        bireme.get(leave.remote())
    error: Any = caught.value
    assert "42" in str(error) and "about to leave" in str(error) and "leave" in str(error)
    assert error.exit_code == 42 and error.signal is None and error.pid > 0
    assert bireme.get(add.remote(1, 2)) == 3


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGABRT])
def test_a_signal_is_in_the_error(runtime: Context, number: signal.Signals) -> None:
    @bireme.remote(max_retries=0)
    def crash(number: int) -> None:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.kill(os.getpid(), number)

    with pytest.raises(exceptions.WorkerCrashedError, match=number.name) as caught:
        bireme.get(crash.remote(int(number)))
    assert caught.value.signal == number
    assert bireme.get(add.remote(1, 2)) == 3


def test_a_crashed_task_is_tried_again(runtime: Context, tmp_path: Path) -> None:
    @bireme.remote(max_retries=2)
    def crash_twice(folder: str) -> int:
        tries = len(os.listdir(folder))
        Path(folder, str(tries)).touch()
        if tries < 2:
            os._exit(1)
        return tries

    assert bireme.get(crash_twice.remote(str(tmp_path))) == 2


def test_a_memory_error_is_an_exception_like_others(runtime: Context) -> None:
    @bireme.remote
    def allocate() -> None:
        bytearray(1 << 60)

    with pytest.raises(MemoryError):
        bireme.get(allocate.remote())
    assert bireme.get(add.remote(1, 2)) == 3


def test_sys_exit_in_a_task_is_an_error_of_the_task(runtime: Context) -> None:
    @bireme.remote(max_retries=0)
    def leave() -> None:
        sys.exit(3)

    with pytest.raises(exceptions.BiremeError, match="SystemExit|3"):
        bireme.get(leave.remote())
    assert bireme.get(add.remote(1, 2)) == 3


def test_a_keyboard_interrupt_of_the_users_own_is_an_error_of_the_task(runtime: Context) -> None:
    @bireme.remote(max_retries=0)
    def interrupt() -> None:
        raise KeyboardInterrupt("mine")

    with pytest.raises((exceptions.TaskError, exceptions.TaskCancelledError)) as caught:
        bireme.get(interrupt.remote())
    assert isinstance(caught.value, exceptions.TaskError)
    assert bireme.get(add.remote(1, 2)) == 3


def test_a_deep_recursion_is_an_error_of_the_task(runtime: Context) -> None:
    @bireme.remote(max_retries=0)
    def dive(n: int) -> int:
        def inner(n: int) -> int:
            return inner(n + 1)

        return inner(n)

    with pytest.raises(RecursionError):
        bireme.get(dive.remote(0))
