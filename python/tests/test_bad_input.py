"""Mistakes of users: a typed error, at once, at the caller's line, that says what to do."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import numpy
import pytest

import bireme
from bireme import exceptions


@bireme.remote
def identity(value: Any = None) -> Any:
    return value


@bireme.remote
def count_to(end: int) -> Iterator[int]:
    yield from range(end)


class Model:
    def __init__(self) -> None:
        self.cache = {"lock": threading.Lock()}


def test_arguments_that_cannot_be_pickled_name_the_path_to_the_member(runtime: Any) -> None:
    for value, words in (
        ([1, {"a": threading.Lock()}], r"\[1\]\['a'\]"),
        (Model(), r"cache\['lock'\]"),
        ((threading.Lock(),), r"\[0\]"),
        (threading.Lock(), "lock"),
        ((n for n in range(3)), "generator"),
    ):
        for call in (lambda v=value: identity.remote(v), lambda v=value: identity.remote(value=v), lambda v=value: bireme.put(v)):
            with pytest.raises(TypeError, match=words) as caught:
                call()
            assert "register_serializer" in str(caught.value)


def test_a_lambda_that_captures_a_lock_names_the_variable(runtime: Any) -> None:
    guard, connection = threading.Lock(), socket.socket()
    with connection:
        for function, name in ((lambda: guard, "guard"), (lambda: connection, "connection")):
            with pytest.raises(TypeError, match=name):
                bireme.remote(function).remote()
            with pytest.raises(TypeError, match=name):
                identity.remote(function)


def test_a_result_that_cannot_be_pickled_is_an_error_of_the_task(runtime: Any) -> None:
    @bireme.remote(max_retries=3)
    def make() -> Any:
        return {"part": [threading.Lock()]}

    with pytest.raises(TypeError, match=r"\['part'\]\[0\]") as caught:
        bireme.get(make.remote())
    assert isinstance(caught.value, exceptions.TaskError) and "make" in str(caught.value)
    assert bireme.get(identity.remote(1)) == 1


def test_a_result_that_cannot_be_read_is_an_error_where_it_is_read(runtime: Any) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return int, ("not a number",)

    ref = bireme.put([Trap()])
    with pytest.raises(ValueError, match="not a number"):
        bireme.get(ref)
    with pytest.raises(ValueError, match="not a number"):
        bireme.get(identity.remote(ref))


def test_a_value_nested_too_deeply_is_an_error_and_no_crash(runtime: Any) -> None:
    deep: list[Any] = []
    for _ in range(200_000):
        deep = [deep]
    with pytest.raises((TypeError, RecursionError)):
        bireme.put(deep)
    while deep:
        deep = deep[0]
    assert bireme.get(bireme.put(1)) == 1


def test_wrong_options_name_the_nearest_right_one() -> None:
    for options, words in (
        ({"num_cpu": 1}, "num_cpus"),
        ({"max_retry": 1}, "max_retries"),
        ({"num_returns": -1}, "num_returns"),
        ({"num_cpus": "two"}, "num_cpus"),
        ({"num_cpus": -1}, "num_cpus"),
        ({"resources": {"CPU": 1}}, "num_cpus"),
        ({"retry_exceptions": [int]}, "retry_exceptions"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            bireme.remote(**options)(lambda: None)
        with pytest.raises((TypeError, ValueError), match=words):
            identity.options(**options)


def test_a_task_that_can_never_run_is_an_error(runtime: Any) -> None:
    with pytest.raises(exceptions.TaskUnschedulableError):
        bireme.get(identity.options(num_cpus=64).remote(1), timeout=60)
    with pytest.raises(exceptions.TaskUnschedulableError, match="unicorn"):
        bireme.get(identity.options(resources={"unicorn": 1}).remote(1), timeout=60)


def test_errors_of_one_call_do_not_spoil_the_next(runtime: Any) -> None:
    for _ in range(50):
        with pytest.raises(TypeError):
            identity.remote([bireme.put(1), threading.Lock()])
    assert bireme.get(identity.remote([bireme.put(1), 2]))[1] == 2


def test_a_timeout_that_is_no_number_is_refused_at_once(runtime: Any) -> None:
    reference = bireme.put(1)
    items = count_to.remote(1)
    reduced = bireme.reduce([bireme.put(numpy.ones(2))])
    for wait in (
        lambda timeout: bireme.get(reference, timeout=timeout),
        lambda timeout: bireme.wait([reference], timeout=timeout),
        lambda timeout: items.next_ref(timeout=timeout),
        lambda timeout: bireme.reduced_from(reduced, timeout=timeout),
    ):
        with pytest.raises(ValueError, match="at least 0 seconds, not nan"):
            wait(float("nan"))
        with pytest.raises(TypeError, match="a number of seconds or None, not a str"):
            wait("soon")
    assert bireme.get(items.next_ref(timeout=float("inf"))) == 0
    assert bireme.reduced_from(reduced, timeout=float("inf")) == [0]
