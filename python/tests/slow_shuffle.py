"""Shuffles of ten times the object store, by one node and by two: no task fails, and every row is there once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pandas
import pytest
from test_daemon import Node

import bireme
from bireme.bench.shuffle import FACTOR, ROWS, STORE_BYTES, Shuffle

# What is shuffled, in all cases.
DATA_BYTES = FACTOR * STORE_BYTES
BLOCKS, PARTS = 80, 80
# A row of a frame has these columns of eight bytes: a key, a name, and numbers.
COLUMNS = 10
NAMES = 1000


@pytest.fixture(params=["one node", "two nodes"])
def store(request: pytest.FixtureRequest, short_path: Path) -> Iterator[None]:
    """A store of 200 MB: of one embedded node with two CPUs, or half of it on each of two nodes with one."""
    if request.param == "one node":
        bireme.init(num_cpus=2, object_store_memory=STORE_BYTES)
        yield
        bireme.shutdown()
        return
    memory = {"BIREME_OBJECT_STORE_MEMORY": str(STORE_BYTES // 2)}
    head = Node(short_path / "head", cpus=1, **memory)
    member = Node(short_path / "member", cpus=1, head=head.address, **memory)
    bireme.init(head.folder)
    yield
    bireme.shutdown()
    member.end()
    head.end()


@pytest.mark.parametrize("row", ROWS)
def test_records_are_shuffled(store: None, row: str) -> None:
    shuffle = Shuffle(ROWS[row], DATA_BYTES)
    data, before = shuffle.prepare()
    shuffle.check(before, shuffle.run(data))


@bireme.remote
def make_frame(seed: int, rows: int) -> Any:
    random = numpy.random.default_rng(seed)
    keys = {"key": random.integers(0, 1 << 40, rows), "name": random.integers(0, NAMES, rows)}
    values = {f"v{number}": random.integers(0, 100, rows).astype("f8") for number in range(COLUMNS - len(keys))}
    return pandas.DataFrame({**keys, **values})


def frames() -> list[Any]:
    rows = DATA_BYTES // BLOCKS // COLUMNS // 8
    return [make_frame.remote(seed, rows) for seed in range(BLOCKS)]


@bireme.remote
def totals(frame: Any) -> Any:
    """Numbers that do not depend on the order of rows, or on how they are spread over frames: whole ones, which wrap around and
    are never rounded.
    """
    return numpy.array([len(frame), *(int(frame[column].sum()) for column in frame)], dtype="i8")


def test_frames_are_sorted(store: None) -> None:
    @bireme.remote(num_returns=PARTS)
    def cut(frame: Any) -> list[Any]:
        part = frame["key"] // ((1 << 40) // PARTS + 1)
        return [frame[part == number] for number in range(PARTS)]

    @bireme.remote
    def merge(*pieces: Any) -> Any:
        return pandas.concat(pieces, ignore_index=True).sort_values("key", ignore_index=True)

    @bireme.remote
    def ends(frame: Any) -> tuple[int, int, bool]:
        return int(frame["key"].iloc[0]), int(frame["key"].iloc[-1]), bool(frame["key"].is_monotonic_increasing)

    data = frames()
    before = sum(bireme.get([totals.remote(frame) for frame in data]))
    pieces = [cut.remote(frame) for frame in data]
    del data
    merged = [merge.remote(*[piece[part] for piece in pieces]) for part in range(PARTS)]
    del pieces
    found = bireme.get([ends.remote(frame) for frame in merged])
    assert all(is_sorted for _, _, is_sorted in found)
    assert all(low[1] < high[0] for low, high in zip(found, found[1:], strict=False))
    assert (sum(bireme.get([totals.remote(frame) for frame in merged])) == before).all()


def test_frames_are_grouped(store: None) -> None:
    @bireme.remote(num_returns=PARTS)
    def cut(frame: Any) -> list[Any]:
        part = frame["name"] % PARTS
        return [frame[part == number] for number in range(PARTS)]

    @bireme.remote
    def group(*pieces: Any) -> Any:
        return pandas.concat(pieces, ignore_index=True).groupby("name").agg({"v0": "sum", "v1": "mean", "key": "count"})

    @bireme.remote
    def group_one(frame: Any) -> Any:
        return frame.groupby("name").agg({"v0": "sum", "v1": "sum", "key": "count"})

    data = frames()
    partial = pandas.concat(bireme.get([group_one.remote(frame) for frame in data]))
    expected = partial.groupby(level="name").sum()
    pieces = [cut.remote(frame) for frame in data]
    del data
    grouped = [group.remote(*[piece[part] for piece in pieces]) for part in range(PARTS)]
    del pieces
    found = pandas.concat(bireme.get(grouped)).sort_index()
    assert list(found.index) == list(range(NAMES))
    assert (found["v0"] == expected["v0"]).all() and (found["key"] == expected["key"]).all()
    assert numpy.allclose(found["v1"] * found["key"], expected["v1"])
