"""wait: what is ready, in which order, and what it refuses."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import bireme
from bireme import exceptions


@bireme.remote
def read(path: str) -> str:
    """Waits for a file: a task that the test ends when it likes."""
    while not Path(path).exists():
        time.sleep(0.002)  # a task that is still running
    return "read"


def test_wait_gives_the_ready_ones_and_the_others_in_the_given_order(runtime: Any, tmp_path: Path) -> None:
    slow = read.remote(str(tmp_path / "file"))
    done = [bireme.put(n) for n in range(3)]
    refs = [done[0], slow, done[1], done[2]]
    assert bireme.wait(refs, num_returns=3, timeout=60) == (done, [slow])
    ready, others = bireme.wait(refs, num_returns=4, timeout=0.02)
    assert ready == done and others == [slow]
    (tmp_path / "file").touch()
    assert bireme.wait(refs, num_returns=4) == (refs, [])


def test_wait_gives_back_the_very_references_and_no_more_than_asked_for(runtime: Any) -> None:
    refs = [bireme.put(n) for n in range(4)]
    ready, others = bireme.wait(refs)
    assert len(ready) == 1 and len(others) == 3, "Ray gives exactly num_returns"
    assert {id(ref) for ref in ready + others} == {id(ref) for ref in refs}


def test_an_error_is_ready_too(runtime: Any) -> None:
    @bireme.remote
    def fail() -> None:
        raise ValueError

    ref = fail.remote()
    assert bireme.wait([ref]) == ([ref], [])


def test_a_timeout_of_zero_only_looks(runtime: Any, tmp_path: Path) -> None:
    slow = read.remote(str(tmp_path / "file"))
    assert bireme.wait([slow], timeout=0) == ([], [slow])
    assert bireme.wait([slow], timeout=0.01, fetch_local=False) == ([], [slow])
    (tmp_path / "file").touch()
    assert bireme.wait([slow], timeout=1e300) == ([slow], [])


def test_one_after_the_other_until_all_are_done(runtime: Any) -> None:
    @bireme.remote
    def same(n: int) -> int:
        return n

    pending, results = [same.remote(n) for n in range(200)], []
    while pending:
        [ready], pending = bireme.wait(pending)
        results.append(bireme.get(ready))
    assert sorted(results) == list(range(200))


def test_bad_arguments_of_wait_are_typed_errors_at_once(runtime: Any) -> None:
    ref = bireme.put(1)
    for refs in (ref, (ref,), {ref}, "text", None):
        with pytest.raises(TypeError, match="list"):
            bireme.wait(refs)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="int"):
        bireme.wait([ref, 5])
    with pytest.raises(ValueError, match="twice"):
        bireme.wait([ref, ref])
    with pytest.raises(ValueError, match="more than the 1"):
        bireme.wait([ref], num_returns=2)
    for count in (0, -1, True, 1.5, "1"):
        with pytest.raises(ValueError, match="num_returns"):
            bireme.wait([ref], num_returns=count)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="timeout"):
        bireme.wait([ref], timeout=-1)
    with pytest.raises(TypeError, match="timeout"):
        bireme.wait([ref], timeout="1")  # type: ignore[arg-type]
    assert bireme.wait([]) == ([], [])


def test_bad_arguments_of_cancel_are_typed_errors(runtime: Any) -> None:
    for value in (5, "text", None, [bireme.put(1)]):
        with pytest.raises(TypeError, match="cancel"):
            bireme.cancel(value)


def test_a_task_that_has_not_started_never_does_after_a_cancel(runtime: Any, tmp_path: Path) -> None:
    first = read.remote(str(tmp_path / "file"))

    @bireme.remote
    def use(value: Any, path: str) -> None:
        Path(path).touch()

    waiting = use.remote(first, str(tmp_path / "ran"))
    bireme.cancel(waiting)
    with pytest.raises(exceptions.TaskCancelledError):
        bireme.get(waiting)
    (tmp_path / "file").touch()
    assert bireme.get(first) == "read" and not (tmp_path / "ran").exists()
