"""get, put and references: what they give, when they wait, and what they refuse."""

from __future__ import annotations

import copy
import pickle
import time
import weakref
from pathlib import Path
from typing import Any

import pytest

import bireme
from bireme import exceptions

numpy = pytest.importorskip("numpy")


@bireme.remote
def read(path: str) -> str:
    """Waits for a file: a task that the test ends when it likes."""
    while not Path(path).exists():
        time.sleep(0.002)  # a task that is still running
    return "read"


@bireme.remote
def identity(value: Any) -> Any:
    return value


def test_get_takes_a_reference_a_list_and_a_tuple(runtime: Any) -> None:
    refs = [bireme.put(n) for n in range(5)]
    assert bireme.get(refs[0]) == 0
    assert bireme.get(refs) == bireme.get(tuple(refs)) == [0, 1, 2, 3, 4]
    assert bireme.get([refs[1], refs[1]]) == [1, 1]
    assert bireme.get([]) == []


def test_get_of_nothing_starts_no_runtime() -> None:
    assert bireme.get([]) == [] and bireme.wait([]) == ([], [])
    assert not bireme.is_initialized()


def test_a_timeout_says_what_the_object_waits_for(runtime: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    ref = read.options(name="slow reader").remote(path)
    for call in (lambda: bireme.get(ref, timeout=0.05), lambda: bireme.get([bireme.put(1), ref], timeout=0.05)):
        with pytest.raises(exceptions.GetTimeoutError) as caught:
            call()
        assert isinstance(caught.value, TimeoutError)
        assert "slow reader" in str(caught.value), caught.value
    with pytest.raises(exceptions.GetTimeoutError):
        bireme.get(ref, timeout=0)
    Path(path).touch()
    assert bireme.get(ref, timeout=60) == "read"
    assert bireme.get(ref, timeout=0) == "read"
    assert bireme.get(ref, timeout=1e300) == "read" and bireme.get([ref], timeout=float("inf")) == ["read"]


def test_a_timeout_names_a_dependency_and_missing_resources(runtime: Any, tmp_path: Path) -> None:
    blocked = identity.options(name="blocked").remote(read.options(name="first").remote(str(tmp_path / "file")))
    with pytest.raises(exceptions.GetTimeoutError, match="blocked|first|argument"):
        bireme.get(blocked, timeout=0.05)
    (tmp_path / "file").touch()
    assert bireme.get(blocked) == "read"


def test_the_first_error_of_a_list_is_raised(runtime: Any) -> None:
    @bireme.remote
    def fail() -> None:
        raise ZeroDivisionError("here")

    with pytest.raises(ZeroDivisionError, match="here"):
        bireme.get([bireme.put(1), fail.remote()])


def test_put_gives_new_objects_and_refuses_references(runtime: Any) -> None:
    value = [1]
    first, second = bireme.put(value), bireme.put(value)
    value.append(2)
    assert first != second and bireme.get(first) == [1]
    with pytest.raises(TypeError, match="reference"):
        bireme.put(first)
    [inner] = bireme.get(bireme.put([first]))
    assert inner == first and bireme.get(inner) == [1]


@pytest.mark.parametrize("runtime", [{"object_store_memory": 64 * 2**20}], indirect=True)
def test_an_object_larger_than_the_store_is_an_error_at_once(runtime: Any) -> None:
    large = numpy.zeros(200 * 2**20, dtype="u1")
    with pytest.raises(exceptions.ObjectStoreFullError, match="object_store_memory|store"):
        bireme.put(large)
    with pytest.raises(exceptions.ObjectStoreFullError):
        identity.remote(large)

    @bireme.remote
    def make() -> Any:
        return numpy.zeros(200 * 2**20, dtype="u1")

    with pytest.raises(exceptions.ObjectStoreFullError):
        bireme.get(make.remote())
    assert bireme.get(bireme.put(numpy.ones(1000))).sum() == 1000


def test_references_are_hashable_equal_by_object_and_copied_as_themselves(runtime: Any) -> None:
    ref = bireme.put(1)
    [same] = bireme.get(bireme.put([ref]))
    other = bireme.put(1)
    assert ref == same and hash(ref) == hash(same) and len({ref, same, other}) == 2
    assert ref != other and ref != 1 and not ref == "text"
    assert copy.copy(ref) is ref and copy.deepcopy([ref]) == [ref]
    assert ref.hex() in repr(ref) or "ObjectRef" in repr(ref)
    assert len(bytes.fromhex(ref.hex())) == len(ref.binary()) == 24 and ref.task_id() in ref.hex()
    assert weakref.ref(ref)() is ref
    assert str(bireme.ObjectRef[int])


def test_a_reference_pickled_by_the_user_keeps_its_object(runtime: Any) -> None:
    pickled = pickle.dumps(bireme.put("kept"))
    assert bireme.get(pickle.loads(pickled)) == "kept"


def test_references_travel_inside_containers_as_references(runtime: Any) -> None:
    @bireme.remote
    def kinds(top: Any, nested: dict[str, list[Any]], *rest: Any, named: Any) -> list[str]:
        return [type(value).__name__ for value in (top, nested["a"][0], rest[0], rest[1][0], named)]

    ref = bireme.put(5)
    found = bireme.get(kinds.remote(ref, {"a": [ref]}, ref, (ref,), named=ref))
    assert found == ["int", "ObjectRef", "int", "ObjectRef", "int"]


def test_an_object_inside_another_lives_as_long_as_it(runtime: Any) -> None:
    outer: Any = bireme.put({"inner": bireme.put(numpy.arange(100_000)), "more": [bireme.put("text")]})
    for _ in range(10):
        bireme.put(numpy.zeros(1_000_000))
    inside = bireme.get(outer)
    assert bireme.get(inside["inner"])[-1] == 99_999 and bireme.get(inside["more"]) == ["text"]


def test_a_reference_captured_by_a_function_works_again_and_again(runtime: Any) -> None:
    captured = bireme.put([1, 2, 3])

    @bireme.remote
    def total() -> int:
        return sum(bireme.get(captured))

    @bireme.remote
    def call(function: Any) -> int:
        return int(bireme.get(function.remote()))

    for _ in range(3):
        assert bireme.get(call.remote(total)) == 6 == bireme.get(total.remote())


def test_ten_thousand_references_as_arguments(runtime: Any) -> None:
    @bireme.remote
    def total(*values: int) -> int:
        return sum(values)

    @bireme.remote
    def total_of_list(refs: list[Any]) -> int:
        return sum(bireme.get(refs))

    refs = [bireme.put(n) for n in range(10_000)]
    assert bireme.get(total.remote(*refs)) == sum(range(10_000))
    assert bireme.get(total_of_list.remote(refs)) == sum(range(10_000))


def test_objects_after_shutdown_are_a_clear_error_and_start_nothing() -> None:
    bireme.init(num_cpus=1)
    ref, array_ref = bireme.put(1), bireme.put(numpy.arange(100_000))
    view = bireme.get(array_ref)
    bireme.shutdown()
    for call in (
        lambda: bireme.get(ref),
        lambda: bireme.get([ref]),
        lambda: bireme.wait([ref]),
        lambda: bireme.cancel(ref),
        lambda: ref.future().result(10),
        ref.done,
    ):
        with pytest.raises(exceptions.BiremeError) as caught:
            call()
        assert isinstance(caught.value, exceptions.NotRunningError), repr(caught.value)
        assert not bireme.is_initialized()
    assert view[-1] == 99_999, "a view outlives the runtime"
    bireme.init(num_cpus=1)
    with pytest.raises(exceptions.BiremeError):
        bireme.get(ref)
    with pytest.raises(exceptions.BiremeError):
        bireme.get(identity.remote(ref))
    assert bireme.get(identity.remote(2)) == 2
    bireme.shutdown()
    del view


def test_bad_arguments_of_get_are_typed_errors_at_once(runtime: Any, tmp_path: Path) -> None:
    never = read.remote(str(tmp_path / "file"))
    refused: list[tuple[Any, str]] = [(5, "int"), ({}, "dict"), (None, "None"), ([never, 5], "int"), ((never, None), "None")]
    for value, words in refused:
        with pytest.raises(ValueError, match=words):
            bireme.get(value)
    timeouts: list[Any] = ["1", True, [1]]
    for timeout in timeouts:
        with pytest.raises(TypeError, match="timeout"):
            bireme.get(never, timeout=timeout)
    with pytest.raises(ValueError, match="timeout"):
        bireme.get(never, timeout=-1)
    (tmp_path / "file").touch()
    assert bireme.get(never) == "read"
