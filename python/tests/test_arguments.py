"""Arguments of tasks: every shape that Python has, and wrong ones told at the caller's line."""

from __future__ import annotations

import traceback
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bireme

numpy = pytest.importorskip("numpy")


def positional_only(a: int, /, b: int = 2) -> tuple[Any, ...]:
    return a, b


def keyword_only(a: int, *, b: int, c: int = 3) -> tuple[Any, ...]:
    return a, b, c


def everything(a: Any, b: Any = "b", *rest: Any, c: Any = "c", **others: Any) -> tuple[Any, ...]:
    return a, b, rest, c, others


def nothing() -> str:
    return "nothing"


CALLS: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
    (positional_only, (1,), {}),
    (positional_only, (1,), {"b": 5}),
    (keyword_only, (1,), {"b": 2}),
    (keyword_only, (), {"a": 1, "b": 2, "c": 4}),
    (everything, (1,), {}),
    (everything, (1, 2, 3, 4), {"c": 5, "d": 6, "self": 7, "args": 8, "name": 9}),
    (everything, (), {"a": None}),
    (nothing, (), {}),
]


def test_calls_of_every_form_arrive_as_they_were_made(runtime: Any) -> None:
    for function, args, kwargs in CALLS:
        assert bireme.get(bireme.remote(function).remote(*args, **kwargs)) == function(*args, **kwargs)


def test_references_are_resolved_wherever_they_stand_at_top_level(runtime: Any) -> None:
    refs = {name: bireme.put(name) for name in "abcde"}
    found = bireme.get(bireme.remote(everything).remote(refs["a"], refs["b"], refs["c"], c=refs["d"], e=refs["e"]))
    assert found == ("a", "b", ("c",), "d", {"e": "e"})


WRONG: list[tuple[Any, tuple[Any, ...], dict[str, Any], str]] = [
    (positional_only, (), {}, "missing a required"),
    (positional_only, (1, 2, 3), {}, "too many positional"),
    (positional_only, (), {"a": 1}, "positional"),
    (positional_only, (1,), {"z": 1}, "unexpected keyword argument 'z'"),
    (keyword_only, (1,), {}, "'b'"),
    (keyword_only, (1, 2), {}, "too many positional"),
    (everything, (1,), {"a": 2}, "multiple values"),
    (nothing, (1,), {}, "too many positional"),
]


def test_wrong_arguments_are_an_error_at_the_callers_line(runtime: Any) -> None:
    for function, args, kwargs, words in WRONG:
        remote = bireme.remote(function)
        for _ in range(2):
            with pytest.raises(TypeError, match=words) as caught:
                remote.remote(*args, **kwargs)
            assert function.__name__ in str(caught.value)
            assert any("remote.remote(*args" in (frame.line or "") for frame in traceback.extract_tb(caught.value.__traceback__))


ANYTHING = st.none() | st.integers() | st.text(max_size=20) | st.binary(max_size=20) | st.lists(st.floats(allow_nan=False), max_size=4)
NAMES = st.text("abcdefgh_ß", min_size=1, max_size=6)


def test_arguments_of_any_shape_arrive_equal(runtime: Any) -> None:
    @bireme.remote
    def give_back(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return args, kwargs

    @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(ANYTHING, max_size=6), st.dictionaries(NAMES, ANYTHING, max_size=4), st.sets(st.integers(0, 5)))
    def check(args: list[Any], kwargs: dict[str, Any], by_reference: set[int]) -> None:
        sent = [bireme.put(value) if index in by_reference else value for index, value in enumerate(args)]
        assert bireme.get(give_back.remote(*sent, **kwargs)) == (tuple(args), kwargs)

    check()


def test_large_arguments_go_through_shared_memory(runtime: Any) -> None:
    @bireme.remote
    def total(*arrays: Any, **named: Any) -> tuple[float, list[bool]]:
        everything = [*arrays, *named.values()]
        return sum(float(array.sum()) for array in everything), [array.flags.writeable for array in everything]

    large = numpy.ones(200_000)
    assert bireme.get(total.remote(large, large, z=large)) == (600_000, [False] * 3)
    texts = ["x" * 300_000, b"y" * 300_000]
    assert bireme.get(bireme.remote(lambda *values: [len(value) for value in values]).remote(*texts)) == [300_000] * 2


def test_an_argument_is_taken_as_it_is_when_the_task_is_submitted(runtime: Any) -> None:
    value = [1]
    ref = bireme.remote(lambda given: given).remote(value)
    value.append(2)
    assert bireme.get(ref) == [1]


def test_thousands_of_arguments_and_too_many(runtime: Any) -> None:
    count = bireme.remote(lambda *args: len(args))
    assert bireme.get(count.remote(*range(60_000))) == 60_000
    with pytest.raises(TypeError, match="pass a list"):
        count.remote(*range(70_000))


def test_built_in_functions_are_checked_by_themselves(runtime: Any) -> None:
    with pytest.raises(TypeError):
        bireme.get(bireme.remote(len).remote(5))
