"""Sort and group-by of ten times the object store, against the file system alone: `shuffle.py ROW [--rounds N] [--quick]`.

`bireme bench --shuffle` starts this script once per row and reads its lines of JSON, one per round:
`{"ours": ..., "floor": ..., "more": {...}}`. Both are MB/s of what is written and read. `ours` counts the bytes that the node's
process writes to and reads from files while the shuffle runs. The floor is a thread that writes and reads as many, in pieces of the
same length, in files without a name in the same folder, and makes them go to the disk: each file is synchronised after it was
written, and dropped from the page cache before it is read. Spilling does neither, so where memory is free it has the page cache to
help; `page_cache_mb_s` is the floor with the same help. The answer of every round is checked.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy

import bireme

MB = 1_000_000
STORE_BYTES = 200 * MB
QUICK_STORE_BYTES = 32 * MB
# So many times the store is sorted or grouped.
FACTOR = 10
# Inputs and outputs of two tasks at a time fit into the store with these.
BLOCKS = 80
PARTS = 80
CPUS = 2
# The records of the sort benchmark have 100 bytes: a key and what goes along with it.
RECORD = numpy.dtype([("key", "<u8"), ("value", "<u8"), ("rest", "V84")])
KEYS = 4096
# Spilling writes and reads in pieces of this length.
CHUNK_BYTES = 1 << 20

Blocks = list[Any]


class Row(NamedTuple):
    """What is done to the blocks, and what must come out."""

    cut: Callable[[Any, int], list[Any]]
    merge: Callable[..., Any]
    describe: Callable[[Any], Any]
    check: Callable[[list[Any], list[Any]], None]


def make(seed: int, rows: int) -> Any:
    """A block of records: random keys, and values from which sums are made."""
    random = numpy.random.default_rng(seed)
    block = numpy.zeros(rows, RECORD)
    block["key"] = random.integers(0, 1 << 63, rows)
    block["value"] = random.integers(0, 1000, rows)
    return block


def split(block: Any, part_of: Any, parts: int) -> list[Any]:
    """The records of every part."""
    order = numpy.argsort(part_of, kind="stable")
    counts = numpy.bincount(part_of, minlength=parts)
    return numpy.split(block[order], numpy.cumsum(counts)[:-1])


def cut_by_range(block: Any, parts: int) -> list[Any]:
    """Records whose keys lie in the same range."""
    return split(block, (block["key"] // ((1 << 63) // parts + 1)).astype(numpy.uint16), parts)


def merge_sorted(*pieces: Any) -> Any:
    """All records of a range, sorted."""
    records = numpy.concatenate(pieces)
    return records[numpy.argsort(records["key"])]


def describe_sorted(records: Any) -> tuple[int, int, int, int, bool]:
    """First and last key, and what does not depend on the order."""
    keys = records["key"]
    is_sorted = bool((keys[1:] >= keys[:-1]).all())
    return int(keys[0]), int(keys[-1]), len(keys), int(keys.sum()), is_sorted


def check_sorted(before: list[Any], after: list[Any]) -> None:
    """Every record is there once, and in order."""
    assert all(is_sorted for *_, is_sorted in after), "a part is not sorted"
    assert all(low[1] <= high[0] for low, high in zip(after, after[1:], strict=False)), "parts overlap"
    assert sum(len_ for _, _, len_, _, _ in after) == sum(len_ for _, _, len_, _, _ in before), "records are lost"
    wrap = 1 << 64
    assert sum(total for *_, total, _ in after) % wrap == sum(total for *_, total, _ in before) % wrap, "other records"


def cut_by_key(block: Any, parts: int) -> list[Any]:
    """Records whose keys are grouped by the same task."""
    return split(block, (block["key"] % KEYS % parts).astype(numpy.uint16), parts)


def merge_groups(*pieces: Any) -> Any:
    """The records of each group one after the other, as a group-by needs them that applies any function."""
    records = numpy.concatenate(pieces)
    return records[numpy.argsort((records["key"] % KEYS).astype(numpy.uint16), kind="stable")]


def describe_groups(records: Any) -> Any:
    """Count and sum of every group."""
    groups = (records["key"] % KEYS).astype(numpy.int64)
    return numpy.stack([numpy.bincount(groups, minlength=KEYS), numpy.bincount(groups, records["value"], KEYS)])


def check_groups(before: list[Any], after: list[Any]) -> None:
    """Sums of the groups are those of the input, and no group is in two parts."""
    assert (sum(before) == sum(after)).all(), "other sums"
    assert (sum((part[0] > 0).astype(int) for part in after) <= 1).all(), "a group is in two parts"


ROWS = {
    "sort": Row(cut_by_range, merge_sorted, describe_sorted, check_sorted),
    "group_by": Row(cut_by_key, merge_groups, describe_groups, check_groups),
}


class Shuffle:
    """A row with its tasks."""

    def __init__(self, row: Row, data_bytes: int, blocks: int = BLOCKS, parts: int = PARTS) -> None:
        self.row = row
        self.blocks, self.parts = blocks, parts
        self.rows = data_bytes // blocks // RECORD.itemsize
        self.make = bireme.remote(make)
        self.cut: Any = bireme.remote(num_returns=parts)(row.cut)
        self.merge = bireme.remote(row.merge)
        self.describe = bireme.remote(row.describe)

    def prepare(self) -> tuple[Blocks, list[Any]]:
        """The blocks, and what is to be known of them."""
        data = [self.make.remote(seed, self.rows) for seed in range(self.blocks)]
        return data, bireme.get([self.describe.remote(block) for block in data])

    def run(self, data: Blocks) -> Blocks:
        """Cuts and merges; every part is made when this returns. The blocks are given away."""
        pieces = []
        while data:
            pieces.append(self.cut.remote(data.pop(), self.parts))
        merged = []
        for part in range(self.parts):
            merged.append(self.merge.remote(*[piece[part] for piece in pieces]))
        del pieces
        waiting = merged
        while waiting:
            _, waiting = bireme.wait(waiting, num_returns=len(waiting), fetch_local=False)
        return merged

    def check(self, before: list[Any], merged: Blocks) -> None:
        """Fails unless the parts are what the blocks have to give."""
        self.row.check(before, bireme.get([self.describe.remote(part) for part in merged]))


def file_bytes() -> tuple[int, int]:
    """Bytes that this process has written and read so far. An embedded node spills in this process."""
    lines = dict(line.split(": ") for line in open("/proc/self/io").read().splitlines())
    return int(lines["wchar"]), int(lines["rchar"])


def floor_seconds(folder: str, written: int, read: int, file_bytes: int, *, to_disk: bool) -> float:
    """Seconds to write and read so many bytes, in files of which each is as long as what lies spilled at a time."""
    chunk = numpy.random.default_rng(1).bytes(CHUNK_BYTES)
    into = bytearray(CHUNK_BYTES)
    seconds = 0.0
    while written > 0 or read > 0:
        start = time.perf_counter()
        file = os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600)
        try:
            here = min(file_bytes, max(written, CHUNK_BYTES))
            for at in range(0, here, CHUNK_BYTES):
                os.pwrite(file, chunk, at)
            if to_disk:
                os.fdatasync(file)
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            back = min(here, read)
            for at in range(0, back, CHUNK_BYTES):
                os.preadv(file, [into], at)
        finally:
            os.close(file)
        seconds += time.perf_counter() - start
        written -= here
        read -= back
    return seconds


def measure(row: Row, store_bytes: int, folder: str) -> dict[str, Any]:
    """One round: ours, the floor with the page cache, and the disk."""
    shuffle = Shuffle(row, FACTOR * store_bytes)
    data, before = shuffle.prepare()
    first, start = file_bytes(), time.perf_counter()
    merged = shuffle.run(data)
    seconds, last = time.perf_counter() - start, file_bytes()
    shuffle.check(before, merged)
    del merged
    written, read = last[0] - first[0], last[1] - first[1]
    moved = (written + read) / MB
    lying = FACTOR * store_bytes
    cached = moved / floor_seconds(folder, written, read, lying, to_disk=False)
    disk = moved / floor_seconds(folder, written, read, lying, to_disk=True)
    more = {"page_cache_mb_s": cached, "written_mb": written / MB, "read_mb": read / MB, "seconds": seconds}
    return {"ours": moved / seconds, "floor": disk, "more": more}


def main() -> None:
    """Measures a row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("row", choices=ROWS)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    store_bytes = QUICK_STORE_BYTES if options.quick else STORE_BYTES
    bireme.init(num_cpus=CPUS, object_store_memory=store_bytes)
    for _ in range(options.rounds):
        print(json.dumps(measure(ROWS[options.row], store_bytes, tempfile.gettempdir())), flush=True)
    bireme.shutdown()


if __name__ == "__main__":
    main()
