"""Values that travel: arrays and tables of other libraries as views of shared memory, and everything else by pickle."""

from __future__ import annotations

import array
import collections
import ctypes
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import subprocess
import sys
import threading
import uuid
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bireme
from bireme import _serialize

numpy = pytest.importorskip("numpy")

NUMERIC = ["?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16", "g", ">i4", ">f8"]
OTHERS = ["S5", "U7", "V3", "M8[ns]", "M8[D]", "m8[us]", [("a", "i4"), ("b", "f8", (2,))]]


def round_trip(value: Any) -> Any:
    return bireme.get(bireme.put(value))


def shared_ranges() -> list[tuple[int, int]]:
    """Where this process has memory that it shares with others."""
    ranges = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, access, *_ = line.split()
        if access.endswith("s"):
            start, end = span.split("-")
            ranges.append((int(start, 16), int(end, 16)))
    return ranges


def is_shared(address: int) -> bool:
    return any(start <= address < end for start, end in shared_ranges())


def encoded_bytes(value: Any) -> int:
    pickled, buffers = _serialize.dumps(value)
    return len(pickled) + sum(buffer.nbytes for buffer in buffers or ())


@bireme.remote
def give_back(value: Any) -> Any:
    return value


@bireme.remote
def address_of(value: Any) -> tuple[int, bool]:
    return value.ctypes.data, is_shared(value.ctypes.data)


def filled(dtype: Any, shape: tuple[int, ...]) -> Any:
    count = int(numpy.prod(shape, dtype=int))
    return numpy.frombuffer(bytes(i % 2 for i in range(count * numpy.dtype(dtype).itemsize)), dtype=dtype).reshape(shape)


def test_arrays_of_every_element_type_and_shape_come_back_with_equal_bits(runtime: Any) -> None:
    for dtype in NUMERIC + OTHERS:
        for shape in ((), (0,), (3,), (2, 0, 4), (2, 3, 4), (300, 40)):
            original = filled(dtype, shape)
            for value in (original, [original], {"a": original}):
                back = round_trip(value)
                back = back if value is original else next(iter(back.values() if isinstance(back, dict) else back))
                assert (back.dtype, back.shape) == (original.dtype, original.shape)
                assert back.tobytes() == original.tobytes(), (dtype, shape)
                assert not back.flags.writeable


def test_arrays_in_any_order_keep_their_contents_and_fortran_order_stays(runtime: Any) -> None:
    base = numpy.arange(60_000.0).reshape(100, 200, 3)
    fortran = numpy.asfortranarray(base)
    views = [base.T, base[::2], base[:, ::-1], base.transpose(1, 0, 2), numpy.broadcast_to(base[0], (400, 200, 3)), fortran]
    for view in views:
        back = round_trip(view)
        assert (back == view).all() and is_shared(back.ctypes.data) and not back.flags.writeable
    assert round_trip(fortran).flags.f_contiguous and round_trip(base.T).flags.f_contiguous


def test_object_arrays_masked_arrays_and_subclasses_come_back(runtime: Any) -> None:
    objects = numpy.array([None, "text", [1, 2]], dtype=object)
    assert round_trip(objects).tolist() == objects.tolist()
    masked = numpy.ma.masked_array(numpy.arange(10_000), mask=numpy.arange(10_000) % 3 == 0)
    back = round_trip(masked)
    assert isinstance(back, numpy.ma.MaskedArray) and (back.mask == masked.mask).all() and back.sum() == masked.sum()
    with pytest.warns(PendingDeprecationWarning):
        assert isinstance(round_trip(numpy.matrix([[1, 2]])), numpy.matrix)
    records = numpy.rec.array([(1, 2.0)], dtype=[("x", "i4"), ("y", "f8")])
    assert round_trip(records).x.tolist() == [1]
    for scalar in (numpy.float32(1.5), numpy.int64(-3), numpy.datetime64("2026-01-02"), numpy.bool_(True)):
        back = round_trip(scalar)
        assert back == scalar and type(back) is type(scalar)


def test_large_arrays_are_aligned_views_of_one_shared_copy(runtime: Any) -> None:
    original = numpy.arange(1_000_000)
    ref = bireme.put(original)
    first, second = bireme.get(ref), bireme.get(ref)
    assert first.ctypes.data == second.ctypes.data, "two gets have read two copies"
    assert is_shared(first.ctypes.data) and first.ctypes.data % 64 == 0
    address, shared = bireme.get(address_of.remote(ref))
    assert shared and address % 64 == 0
    nested = bireme.get(bireme.put({"a": [original, original[:500_000].astype("M8[s]")]}))["a"]
    assert all(is_shared(part.ctypes.data) and part.ctypes.data % 64 == 0 for part in nested)


def test_a_view_outlives_its_reference_and_the_object_goes_with_the_last_view(runtime: Any) -> None:
    view = bireme.get(bireme.put(numpy.full(1_000_000, 7)))
    for _ in range(20):
        bireme.put(numpy.zeros(1_000_000))
    assert (view == 7).all()


def test_views_are_read_only_and_copies_are_private(runtime: Any) -> None:
    ref = bireme.put(numpy.zeros(100_000))
    with pytest.raises(ValueError, match="read-only"):
        bireme.get(ref)[0] = 1
    copy = bireme.get(ref, copy=True)
    copy[:] = 5
    assert not is_shared(copy.ctypes.data) and (bireme.get(ref) == 0).all()
    [nested] = bireme.get([bireme.put({"a": numpy.zeros(100_000)})], copy=True)
    nested["a"][0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        bireme.get(ref).setflags(write=True)
    view = bireme.get(ref).base
    while isinstance(view, numpy.ndarray):
        view = view.base
    with pytest.raises(TypeError, match="writable"):
        ctypes.c_char.from_buffer(getattr(view, "obj", view))


@pytest.mark.parametrize("size", [0, 1, 100, 70_000, 1_000_000])
def test_bytes_in_every_form_come_back(runtime: Any, size: int) -> None:
    contents = bytes(size)
    assert round_trip(contents) == contents and type(round_trip(contents)) is bytes
    assert round_trip(bytearray(contents)) == bytearray(contents) and type(round_trip(bytearray(contents))) is bytearray
    assert bytes(round_trip(memoryview(contents))) == contents
    assert round_trip(array.array("d", [1.0, 2.0])) == array.array("d", [1.0, 2.0])


def test_a_huge_array_goes_through_a_task(runtime: Any) -> None:
    original = numpy.arange(8_000_000)
    back = bireme.get(give_back.remote(original))
    assert back[-1] == 7_999_999 and is_shared(back.ctypes.data)


class Colour(enum.Enum):
    RED = 1


class Flags(enum.IntFlag):
    A = 1
    B = 2


class Point(NamedTuple):
    x: int
    y: int


@dataclasses.dataclass(frozen=True)
class Pair:
    left: Any
    right: Any


Plain = collections.namedtuple("Plain", "a b")

VALUES: list[Any] = [
    None, True, 0, -1, 2**63 - 1, -(2**63), 2**63, -(2**200), 0.0, -0.0, 1e308, float("inf"), 1 + 2j, "", "text", "ß\U0001f600",
    "\ud800", b"", (), [], {}, set(), frozenset({1}), range(3), slice(1, 2), ..., NotImplemented, int, len, str.join,
    datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc), datetime.timedelta(1), decimal.Decimal("1.5"),
    fractions.Fraction(1, 3), uuid.UUID(int=5), Colour.RED, Flags.A | Flags.B, Point(1, 2), Plain(1, 2), Pair(1, [2]),
    collections.OrderedDict(a=1), collections.Counter("aab"), collections.deque([1], maxlen=3), Path("/a/b"),
    collections.defaultdict(list, {"a": [1]}), functools.partial(int, base=2), ValueError("wrong", 3).args,
]  # fmt: skip


def test_plain_values_come_back_equal_and_of_the_same_type(runtime: Any) -> None:
    for value in VALUES:
        for back in (round_trip(value), bireme.get(give_back.remote(value)), bireme.get(give_back.remote(bireme.put(value)))):
            assert type(back) is type(value)
            if not isinstance(value, functools.partial):
                assert back == value, value
    assert str(round_trip(-0.0)) == "-0.0" and str(round_trip(float("nan"))) == "nan"
    assert round_trip(Colour.RED) is Colour.RED


def test_a_value_that_contains_itself_and_shared_parts_keep_their_shape(runtime: Any) -> None:
    ring: list[Any] = [1]
    ring.append(ring)
    back = round_trip(ring)
    assert back[1] is back
    part = [1]
    first, second = round_trip((part, part))
    assert first is second


CONTAINERS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=30,
)


def test_containers_of_any_shape_come_back_equal(runtime: Any) -> None:
    @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
    @given(CONTAINERS)
    def check(value: Any) -> None:
        assert round_trip(value) == value
        assert bireme.get(give_back.remote(value)) == value

    check()


def test_arrays_of_any_shape_come_back_equal(runtime: Any) -> None:
    extra = pytest.importorskip("hypothesis.extra.numpy")

    @settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
    @given(extra.arrays(extra.scalar_dtypes(), extra.array_shapes(min_dims=0, max_dims=4, min_side=0)), st.booleans())
    def check(value: Any, transpose: bool) -> None:
        value = value.T if transpose else value
        back = round_trip((value,))[0]
        assert back.dtype == value.dtype and back.shape == value.shape and back.tobytes() == value.tobytes()

    check()


class Guarded:
    """Cannot be pickled by itself."""

    def __init__(self, value: int) -> None:
        self.value, self.lock = value, threading.Lock()


def test_a_registered_serializer_works_both_ways_and_can_be_forgotten(runtime: Any) -> None:
    from bireme.util import deregister_serializer, register_serializer

    register_serializer(Guarded, serializer=lambda guarded: guarded.value, deserializer=Guarded)
    try:

        @bireme.remote
        def double(guarded: Guarded) -> Guarded:
            return Guarded(guarded.value * 2)

        @bireme.remote
        def make() -> list[Guarded]:
            return [Guarded(5)]

        assert bireme.get(double.remote(Guarded(4))).value == 8
        assert bireme.get(make.remote())[0].value == 5
        assert round_trip({"a": Guarded(1)})["a"].value == 1
        assert bireme.get(give_back.remote(Guarded(3))).value == 3, "a function that was known before the serializer"
    finally:
        deregister_serializer(Guarded)
    with pytest.raises(TypeError, match="lock"):
        bireme.put(Guarded(1))


def test_nothing_heavy_is_imported_by_the_package(program: Any) -> None:
    source = """
        import sys
        import bireme
        bireme.get(bireme.put([1, (2,), {"a": b""}]))
        bireme.shutdown()
        print([name for name in ("numpy", "pandas", "pyarrow", "torch", "jax", "asyncio") if name in sys.modules])
    """
    assert program.run(source=source)[0] == "[]\n"


def test_arrays_are_memoryviews_where_there_is_no_numpy() -> None:
    source = (
        "import sys; sys.modules['numpy'] = None\n"
        "from bireme._serialize import make_array\n"
        "view = make_array(bytes(range(16)), '<u4', (2, 2))\n"
        "assert view.tolist()[0][0] == 0x03020100 and view.shape == (2, 2), view\n"
    )
    subprocess.run([sys.executable, "-c", source], check=True, cwd=Path(bireme.__file__).parent.parent)
