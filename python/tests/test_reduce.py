"""Reduces of arrays: operations, dtypes, late inputs, counts, orders, and mistakes that name what they are about."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from functools import reduce as fold
from pathlib import Path
from typing import Any

import numpy
import pytest

import bireme
from bireme.exceptions import GetTimeoutError, ReduceError, TaskCancelledError

PATIENCE_S = 60.0
# In a message, and in the store.
LENGTHS = [100, 100_000]


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    bireme.init(num_cpus=2, object_store_memory=256 << 20)
    yield
    bireme.shutdown()


@bireme.remote
def ramp(length: int, by: float, dtype: str = "f8") -> Any:
    return (numpy.arange(length) % 10 * by).astype(dtype)


@bireme.remote
def ramp_after(length: int, by: float, gate: str) -> Any:
    # Opening a named pipe waits for the other side.
    with open(gate):
        pass
    return numpy.arange(length) % 10 * by


@bireme.remote
def fail() -> Any:
    raise ValueError("no array today")


def get(ref: Any) -> Any:
    return bireme.get(ref, timeout=PATIENCE_S)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4", "i8", "u1"])
def test_every_operation_on_every_dtype_is_as_numpy_does_it(dtype: str, length: int) -> None:
    arrays = [(numpy.arange(length) % 5 + n).astype(dtype) for n in range(1, 4)]
    refs = [bireme.put(array) for array in arrays]
    functions = {"sum": operator.add, "product": operator.mul, "min": numpy.minimum, "max": numpy.maximum}
    for name, function in functions.items():
        found = get(bireme.reduce(refs, name, order="fixed"))  # type: ignore[arg-type]
        assert found.dtype == numpy.dtype(dtype)
        assert numpy.array_equal(found, fold(function, arrays)), name
    if dtype.startswith("f"):
        assert numpy.allclose(get(bireme.reduce(refs, "mean")), sum(arrays) / 3, rtol=1e-2)


@pytest.mark.parametrize("length", LENGTHS)
def test_shapes_are_kept_and_results_feed_reduces(length: int) -> None:
    refs = [bireme.put(numpy.full((length // 4, 4), n, dtype="f4")) for n in (1, 2, 3)]
    first = bireme.reduce(refs[:2])
    both = get(bireme.reduce([first, refs[2]], "max"))
    assert both.shape == (length // 4, 4)
    assert (both == 3).all()


@pytest.mark.parametrize("length", LENGTHS)
def test_inputs_may_come_later_than_the_reduce(length: int, tmp_path: Path) -> None:
    import os

    gate = tmp_path / "gate"
    os.mkfifo(gate)
    late = ramp_after.remote(length, 2.0, str(gate))
    refs = [ramp.remote(length, 1.0), late, ramp.remote(length, 4.0)]
    whole = bireme.reduce(refs)
    two = bireme.reduce(refs, count=2)
    assert bireme.reduced_from(two, timeout=PATIENCE_S) == [0, 2]
    assert (get(two) == numpy.arange(length) % 10 * 5).all()
    with pytest.raises(GetTimeoutError, match="waits for 1 more"):
        bireme.get(whole, timeout=0.01)
    with open(gate, "w"):
        pass
    assert (get(whole) == numpy.arange(length) % 10 * 7).all()


def test_a_task_takes_the_result_and_the_inputs_may_be_dropped() -> None:
    @bireme.remote
    def first(array: Any) -> float:
        return float(array[1])

    whole = bireme.reduce([ramp.remote(100_000, by) for by in (1.0, 2.0)])
    assert get(first.remote(whole)) == 3.0


def test_a_reduce_inside_of_a_task() -> None:
    @bireme.remote
    def inside(length: int) -> float:
        whole = bireme.reduce([ramp.remote(length, by) for by in (1.0, 2.0)])
        return float(bireme.get(whole)[1])

    assert get([inside.remote(length) for length in LENGTHS]) == [3.0, 3.0]


@pytest.mark.parametrize("length", LENGTHS)
def test_what_cannot_be_reduced_names_the_inputs(length: int) -> None:
    good = bireme.put(numpy.ones(length, dtype="f4"))
    others = [
        numpy.ones(length, dtype="i4"),
        numpy.ones((length // 2, 2), dtype="f4"),
        numpy.ones(length * 2, dtype="f4"),
        numpy.ones(length, dtype="u4"),
        b"no array" * length,
        {"not": "an array"},
    ]
    for other in others:
        with pytest.raises(ReduceError, match="input [01] "):
            get(bireme.reduce([good, bireme.put(other)]))
    whole = [bireme.put(numpy.ones(length, dtype="i8")) for _ in range(2)]
    with pytest.raises(ReduceError, match="mean"):
        get(bireme.reduce(whole, "mean"))
    with pytest.raises(ReduceError, match="input 1 .*no array today"):
        get(bireme.reduce([good, fail.remote()]))


@pytest.mark.parametrize("length", LENGTHS)
def test_an_input_that_is_alone_is_looked_at_like_many(length: int) -> None:
    for other in (b"no array" * length, {"not": ["an", "array"] * length}, "no array" * length):
        ref = bireme.put(other)
        for op in ("sum", "mean"):
            with pytest.raises(ReduceError, match="input 0 "):
                get(bireme.reduce([ref], op))  # type: ignore[arg-type]
    for count in (1, 2, 3):
        whole = [bireme.put(numpy.ones(length, dtype="i8")) for _ in range(count)]
        with pytest.raises(ReduceError, match="input .*mean|mean.*input "):
            get(bireme.reduce(whole, "mean"))
        for dtype in ("u2", "?", "c16"):
            odd = [bireme.put(numpy.ones(length, dtype=dtype)) for _ in range(count)]
            with pytest.raises(ReduceError, match="input "):
                get(bireme.reduce(odd))


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 0, 3)])
def test_arrays_of_no_element_and_of_one_byte(shape: tuple[int, ...]) -> None:
    refs = [bireme.put(numpy.full(shape, n, dtype="u1")) for n in (1, 2, 3)]
    for count in (1, 3):
        found = get(bireme.reduce(refs[:count]))
        assert found.shape == shape and found.dtype == numpy.uint8
        assert (found == sum((1, 2, 3)[:count])).all()


def test_a_failed_input_is_replaced_when_enough_are_left() -> None:
    for length in LENGTHS:
        refs = [fail.remote(), ramp.remote(length, 1.0), ramp.remote(length, 2.0)]
        assert bireme.reduced_from(bireme.reduce(refs, count=2), timeout=PATIENCE_S) == [1, 2]


def test_what_is_wrong_with_the_call_is_an_error_at_once() -> None:
    refs = [bireme.put(numpy.ones(3)) for _ in range(2)]
    with pytest.raises(ValueError, match="no objects"):
        bireme.reduce([])
    with pytest.raises(ValueError, match="input 0 and input 2"):
        bireme.reduce([*refs, refs[0]])
    for count in (0, 3, True, 1.5):
        with pytest.raises(ValueError, match="1 to 2"):
            bireme.reduce(refs, count=count)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="op is one of"):
        bireme.reduce(refs, "median")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="order is"):
        bireme.reduce(refs, order="random")  # type: ignore[arg-type]
    for plan in ("tree", ("chain", 2), ("tree", 0), ("tree",), None, 3):
        with pytest.raises(ValueError, match="plan is"):
            bireme.reduce(refs, plan=plan)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not a function: .* call a task"):
        bireme.reduce(refs, numpy.hypot)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="input 1 is a float"):
        bireme.reduce([refs[0], 3.0])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="a list of references"):
        bireme.reduce(refs[0])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not the result of a reduce"):
        bireme.reduced_from(refs[0])


def test_plans_are_accepted_where_there_is_one_node() -> None:
    refs = [ramp.remote(100_000, by) for by in (1.0, 2.0, 3.0)]
    for plan in ("paper", "chain", "two_level", "star", ("tree", 3)):
        assert get(bireme.reduce(refs, plan=plan))[1] == 6.0


def test_a_cancelled_reduce_says_so(tmp_path: Path) -> None:
    import os

    gate = tmp_path / "gate"
    os.mkfifo(gate)
    late = ramp_after.remote(10, 1.0, str(gate))
    waiting = bireme.reduce([late])
    bireme.cancel(waiting)
    with pytest.raises(TaskCancelledError):
        get(waiting)
    with open(gate, "w"):
        pass
    get(late)


@pytest.mark.parametrize("shape", [(3, 4), (200, 300)])
def test_arrays_of_another_layout_are_refused_with_the_way_to_convert_them(shape: tuple[int, int]) -> None:
    array = numpy.ones(shape)
    for other in (array.T, array[:, ::2], array.astype(">f8")):
        with pytest.raises(ReduceError, match="C order and native byte order.*numpy.ascontiguousarray"):
            get(bireme.reduce([bireme.put(other), bireme.put(other)]))
