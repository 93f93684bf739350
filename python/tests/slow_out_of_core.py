"""Shuffles of ten times the object store: no task fails, and every row is there once."""

from __future__ import annotations

from typing import Any

import numpy
from test_out_of_core import MB, STORE, make, sort

import bireme


@STORE
def test_a_sort_of_ten_times_the_store_gives_every_row_once(runtime: Any) -> None:
    sort(blocks=40, parts=32, rows=MB)


@STORE
def test_a_group_by_of_ten_times_the_store_counts_every_key(runtime: Any) -> None:
    blocks, parts, keys, rows = 40, 32, 1024, MB

    def by_key(block: Any) -> list[Any]:
        hashed = block % keys % parts
        return [numpy.ascontiguousarray(block[hashed == part]) for part in range(parts)]

    @bireme.remote
    def count(*pieces: Any) -> Any:
        return numpy.bincount(numpy.concatenate(pieces) % keys, minlength=keys)

    @bireme.remote
    def count_one(block: Any) -> Any:
        return numpy.bincount(block % keys, minlength=keys)

    data = [make.remote(seed, rows) for seed in range(blocks)]
    expected = sum(bireme.get([count_one.remote(block) for block in data]))
    split = bireme.remote(by_key).options(num_returns=parts)
    pieces = [split.remote(block) for block in data]
    del data
    counted = [count.remote(*[piece[part] for piece in pieces]) for part in range(parts)]
    del pieces
    assert (sum(bireme.get(counted)) == expected).all()
    assert int(expected.sum()) == blocks * rows
