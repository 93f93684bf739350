"""Which member cannot be pickled: the path that errors and `inspect_serializability` name."""

from __future__ import annotations

import functools
import io
import threading
from collections import OrderedDict, namedtuple
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.util._inspect import SEARCH_DEPTH_MAX, find_unserializable, path_to_unserializable
from bireme.util.check_serialize import inspect_serializability

LOCK = threading.Lock()
Pair = namedtuple("Pair", "left right")


class Holder:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class Slotted:
    __slots__ = ("lock",)

    def __init__(self) -> None:
        self.lock = LOCK


@dataclass
class Record:
    name: str = "x"
    parts: list[Any] = field(default_factory=lambda: [1, LOCK])


class WithState:
    def __getstate__(self) -> dict[str, Any]:
        return {"kept": 1, "lock": LOCK}


class WithReduce:
    def __reduce__(self) -> tuple[Any, ...]:
        return (WithReduce, (1, LOCK))


def closure_over(captured: Any) -> Any:
    def inner() -> Any:
        return captured

    return inner


def local_class() -> type:
    class Local:
        lock = LOCK

    return Local


def with_method() -> Any:
    captured = LOCK

    class Local:
        def method(self) -> Any:
            return captured

    return Local


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (LOCK, "argument 'm'"),
        ([1, [2, LOCK]], "argument 'm'[1][1]"),
        ({"a": {"b": LOCK}}, "argument 'm'['a']['b']"),
        (Holder(cache={"lock": LOCK}), "argument 'm'.cache['lock']"),
        (Holder(first=1, other=Holder(lock=LOCK)), "argument 'm'.other.lock"),
        (Slotted(), "argument 'm'.lock"),
        (Record(), "argument 'm'.parts[1]"),
        (Pair(1, LOCK), "argument 'm'.right"),
        (OrderedDict(a=1, b=LOCK), "argument 'm'['b']"),
        (WithState(), "argument 'm'.lock"),
        (WithReduce(), "argument 'm'.__reduce__()"),
        (functools.partial(max, 1, key=LOCK), "argument 'm'.keywords['key']"),
        (Holder(lock=LOCK).__repr__, "argument 'm'"),
        (ValueError("x", LOCK), "argument 'm'"),
        (closure_over(LOCK), "closure variable 'captured' of <function closure_over.<locals>.inner>"),
        (closure_over(Holder(a=[LOCK])), "closure variable 'captured'.a[0] of <function closure_over.<locals>.inner>"),
        (
            [closure_over(LOCK)],
            "closure variable 'captured' of <function closure_over.<locals>.inner>, which is argument 'm'[0]",
        ),
        (local_class(), "class attribute 'lock' of <class local_class.<locals>.Local>"),
        (with_method(), "closure variable 'captured' of <function with_method.<locals>.Local.method>"),
        (lambda lock=LOCK: lock, "default value 0 of <function <lambda>>"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_path_names_the_member(value: Any, path: str) -> None:
    found = path_to_unserializable(value, "argument 'm'")
    assert found is not None and found[0].startswith(path)


def test_the_member_itself_is_given() -> None:
    found = path_to_unserializable({"a": LOCK})
    assert found == ("value['a']", LOCK)


def test_global_variables_of_functions_of_main_are_found() -> None:
    namespace: dict[str, Any] = {"__name__": "__main__", "lock": LOCK}
    exec("def work():\n    return [lock for _ in range(3)]", namespace)
    found = path_to_unserializable(namespace["work"])
    assert found is not None and found[0] == "global variable 'lock' of <function work>"


def test_what_can_be_pickled_has_no_path() -> None:
    assert path_to_unserializable([1, {"a": Holder(x=2)}, closure_over(3), local_class]) is None


def test_a_member_of_a_set_and_a_key_are_found() -> None:
    found = path_to_unserializable([{LOCK}])
    assert found is not None and found[0] == "a member of the set value[0]" and found[1] is LOCK
    found = path_to_unserializable({(1, LOCK): 2})
    assert found is not None and "the key" in found[0] and found[1] is LOCK


def test_circles_and_depth_are_bounded() -> None:
    circle: list[Any] = [LOCK]
    circle.insert(0, circle)
    found = path_to_unserializable(circle)
    assert found == ("value[1]", LOCK)
    deep: Any = LOCK
    for _ in range(100):
        deep = [deep]
    finding = find_unserializable(deep)
    assert finding is not None and len(finding.names) == SEARCH_DEPTH_MAX + 1


def test_long_lists_are_bounded_too() -> None:
    found = path_to_unserializable([Holder(x=1)] * 10 + [LOCK])
    assert found == ("value[10]", LOCK)
    assert path_to_unserializable([Holder(x=number) for number in range(6000)] + [LOCK]) is not None


@given(
    st.recursive(
        st.just(None) | st.integers() | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    )
)
def test_a_lock_anywhere_in_containers_is_found(shape: Any) -> None:
    found = path_to_unserializable(["before", {"inside": [shape, {"here": LOCK}]}, shape])
    assert found == ("value[1]['inside'][1]['here']", LOCK)


def test_inspect_serializability_says_what_ray_says() -> None:
    output = io.StringIO()
    ok, failures = inspect_serializability(closure_over(LOCK), name="work", print_file=output)
    assert not ok
    [failure] = failures
    assert failure.obj is LOCK and failure.name == "captured" and failure.path == ("work", "captured")
    assert "closure variable 'captured'" in output.getvalue() and "_thread.lock" in output.getvalue()
    assert "captured" in repr(failure)
    ok, failures = inspect_serializability(closure_over(1), print_file=output)
    assert ok and failures == set()
    ok, failures = inspect_serializability([[[[LOCK]]]], depth=1, print_file=output)
    assert not ok and next(iter(failures)).obj == [[[LOCK]]]
