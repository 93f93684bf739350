"""Tables, frames and tensors of other libraries: views of shared memory after `get`, and slices that ship only themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import bireme
from bireme import _serialize

numpy = pytest.importorskip("numpy")


def round_trip(value: Any) -> Any:
    return bireme.get(bireme.put(value))


def is_shared(address: int) -> bool:
    """Whether an address is in memory that this process shares with others."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, access, *_ = line.split()
        start, end = (int(part, 16) for part in span.split("-"))
        if start <= address < end:
            return access.endswith("s")
    return False


def encoded_bytes(value: Any) -> int:
    pickled, buffers = _serialize.dumps(value)
    return len(pickled) + sum(buffer.nbytes for buffer in buffers or ())


@bireme.remote
def give_back(value: Any) -> Any:
    return value


def arrow_arrays(arrow: Any) -> list[Any]:
    count = 20_000
    numbers = list(range(count))
    texts = [f"text {n}" if n % 7 else None for n in numbers]
    return [
        arrow.array(numbers, arrow.int64()),
        arrow.array([n if n % 3 else None for n in numbers], arrow.float64()),
        arrow.array([n % 2 == 0 for n in numbers]),
        arrow.array(texts),
        arrow.array(texts, arrow.large_string()),
        arrow.array(texts, arrow.string_view()),
        arrow.array([b"x" * 5] * count, arrow.binary(5)),
        arrow.array([[n, n + 1] if n % 5 else None for n in numbers], arrow.list_(arrow.int32())),
        arrow.array([{"a": n, "b": str(n)} for n in numbers]),
        arrow.array([str(n % 10) for n in numbers]).dictionary_encode(),
        arrow.array(numbers, arrow.timestamp("us", tz="UTC")),
        arrow.array([[("k", n)] for n in numbers], arrow.map_(arrow.string(), arrow.int64())),
        arrow.array(numbers, arrow.decimal128(20, 0)),
        arrow.nulls(count),
    ]


def buffers_of(array: Any) -> list[Any]:
    return [buffer for buffer in array.buffers() if buffer is not None and buffer.size > 0]


def test_arrow_arrays_of_every_kind_are_views_of_shared_memory(runtime: Any) -> None:
    arrow = pytest.importorskip("pyarrow")
    for array in arrow_arrays(arrow):
        back = round_trip(array)
        assert back.equals(array) and back.type == array.type
        if array.nbytes > 70_000:  # smaller values travel in messages
            assert all(is_shared(buffer.address) for buffer in buffers_of(back)), array.type
        assert bireme.get(give_back.remote(array)).equals(array)


def test_a_sliced_arrow_array_ships_only_its_slice(runtime: Any) -> None:
    arrow = pytest.importorskip("pyarrow")
    for array in arrow_arrays(arrow):
        part = array.slice(101, 50)
        assert round_trip(part).equals(part), array.type
        assert round_trip(part.slice(3, 0)).equals(part.slice(3, 0))
        if array.nbytes > 20_000:
            assert encoded_bytes(part) < 6_000, f"{array.type}: {encoded_bytes(part)} bytes for 50 of 20,000 elements"
    numbers = arrow.array(range(1_000_000))
    half = round_trip(numbers.slice(500_000))
    assert is_shared(buffers_of(half)[-1].address), "the slice that arrived is a copy"


def test_arrow_tables_batches_and_chunks_ship_only_their_slices(runtime: Any) -> None:
    arrow = pytest.importorskip("pyarrow")
    columns = {str(number): array for number, array in enumerate(arrow_arrays(arrow))}
    table = arrow.table(columns).replace_schema_metadata({"made": "here"})
    batch = arrow.record_batch(columns)
    chunked = arrow.chunked_array([range(20_000), range(10)])
    for whole in (table, batch, chunked):
        back = round_trip(whole)
        assert type(back) is type(whole) and back.equals(whole)
        part = whole.slice(1_000, 100)
        back = round_trip(part)
        assert back.equals(part) and encoded_bytes(part) < 40_000 < encoded_bytes(whole)
    assert round_trip(table).schema.metadata == {b"made": b"here"}
    assert round_trip(table.schema) == table.schema
    assert is_shared(buffers_of(round_trip(table).column(0).chunk(0))[-1].address)
    buffer = arrow.py_buffer(bytes(200_000))
    assert is_shared(round_trip(buffer).address) and encoded_bytes(buffer.slice(10, 100)) < 1_000


def test_pandas_frames_are_views_of_shared_memory(runtime: Any) -> None:
    pandas = pytest.importorskip("pandas")
    count = 50_000
    frame = pandas.DataFrame(
        {
            "number": numpy.arange(count),
            "real": numpy.linspace(0, 1, count),
            "time": pandas.date_range("2026-01-01", periods=count, freq="s"),
            "zone": pandas.date_range("2026-01-01", periods=count, freq="s", tz="Europe/Berlin"),
            "text": [f"text {n}" for n in range(count)],
            "kind": pandas.Categorical(["a", "b"] * (count // 2)),
            "gaps": pandas.array([1, None] * (count // 2), dtype="Int64"),
        }
    )
    for value in (frame, frame["time"], frame.set_index("time"), frame[100:200], frame[frame["number"] % 2 == 0]):
        back = round_trip(value)
        assert back.equals(value) and type(back) is type(value)
    back = bireme.get(give_back.remote(frame))
    for name in ("number", "real", "time"):
        assert is_shared(back[name].to_numpy().ctypes.data), name
    assert encoded_bytes(frame[["number", "real"]][100:200]) < 6_000
    changed = bireme.get(bireme.put(frame), copy=True)
    changed.loc[0, "real"] = 5.0
    assert changed["real"][0] == 5.0


def test_jax_arrays_come_back_as_jax_arrays_on_shared_memory(program: Any) -> None:
    pytest.importorskip("jax")
    # In a process of its own: jax starts threads.
    source = """
        import jax, jax.numpy as jnp, numpy
        import bireme
        from pathlib import Path

        def is_shared(address):
            for line in Path("/proc/self/maps").read_text().splitlines():
                span, access, *_ = line.split()
                start, end = (int(part, 16) for part in span.split("-"))
                if start <= address < end:
                    return access.endswith("s")

        @bireme.remote
        def double(array):
            return array * 2, type(array).__name__

        with bireme.init(num_cpus=2):
            large = jnp.arange(100_000, dtype=jnp.float32)
            back = bireme.get(bireme.put(large))
            assert isinstance(back, jax.Array) and back.dtype == large.dtype and (back == large).all()
            assert is_shared(back.unsafe_buffer_pointer()), "it is a copy"
            doubled, kind = bireme.get(double.remote(large))
            assert kind == "ArrayImpl" and (doubled == large * 2).all() and isinstance(doubled, jax.Array)
            small = {"w": jnp.ones((3, 4), dtype=jnp.bfloat16), "n": jnp.int32(3), "weak": jnp.asarray(2.0) * 1}
            back = bireme.get(bireme.put(small))
            assert back["w"].dtype == jnp.bfloat16 and back["w"].shape == (3, 4) and back["n"] == 3
            weak = jnp.add(1.0, 1)
            assert bireme.get(bireme.put(weak)).weak_type == weak.weak_type
            assert (numpy.asarray(back["w"]) == 1).all()
        print("all is well")
    """
    output, errors = program.run(source=source, env={"JAX_PLATFORMS": "cpu"})
    assert output == "all is well\n", errors
