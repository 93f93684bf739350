"""Programs whose data is larger than the object store, as users write them."""

from __future__ import annotations

import gc
from typing import Any

import pytest

import bireme

numpy = pytest.importorskip("numpy")

MB = 1_000_000
TOP = 1 << 30

STORE = pytest.mark.parametrize("runtime", [{"num_cpus": 2, "object_store_memory": 32 * MB}], indirect=True)


@bireme.remote
def make(seed: int, rows: int) -> Any:
    return numpy.random.default_rng(seed).integers(0, TOP, rows, dtype=numpy.int64)


def cut(block: Any, parts: int) -> list[Any]:
    block = numpy.sort(block)
    edges = numpy.searchsorted(block, numpy.linspace(0, TOP, parts + 1)[1:-1])
    return [numpy.ascontiguousarray(part) for part in numpy.split(block, edges)]


@bireme.remote
def merge(*parts: Any) -> Any:
    return numpy.sort(numpy.concatenate(parts))


@bireme.remote
def describe(values: Any) -> tuple[int, int, int, int, bool]:
    is_sorted = bool((values[1:] >= values[:-1]).all())
    return int(values[0]), int(values[-1]), len(values), int(values.sum()), is_sorted


def sort(blocks: int, parts: int, rows: int) -> None:
    """Sorts random numbers in two steps, as a shuffle does, and checks that every one is there once."""
    data = [make.remote(seed, rows) for seed in range(blocks)]
    before = [describe.remote(block) for block in data]
    split = bireme.remote(cut).options(num_returns=parts)
    pieces = [split.remote(block, parts) for block in data]
    del data
    merged = [merge.remote(*[piece[part] for piece in pieces]) for part in range(parts)]
    del pieces
    after = [bireme.get(describe.remote(part)) for part in merged]
    assert all(is_sorted for *_, is_sorted in after)
    assert all(low[1] <= high[0] for low, high in zip(after, after[1:], strict=False))
    assert sum(count for _, _, count, _, _ in after) == blocks * rows
    assert sum(total for *_, total, _ in after) == sum(total for *_, total, _ in bireme.get(before))


@STORE
def test_a_sort_of_three_times_the_store_gives_every_row_once(runtime: Any) -> None:
    sort(blocks=12, parts=6, rows=MB)


@STORE
def test_a_training_loop_over_more_shards_than_fit_sees_each_in_every_epoch(runtime: Any) -> None:
    shards = [bireme.put(numpy.full(MB, number, dtype="u4")) for number in range(20)]

    @bireme.remote
    def step(weights: Any, first: Any, second: Any) -> Any:
        return weights + first[0] + second[-1]

    for _ in range(3):
        weights = [step.remote(numpy.zeros(1), *pair) for pair in zip(shards[::2], shards[1::2], strict=True)]
        assert sum(float(weight[0]) for weight in bireme.get(weights)) == sum(range(20))


@STORE
def test_a_get_of_more_than_the_store_holds_gives_all_values(runtime: Any) -> None:
    refs = [bireme.put(numpy.full(10 * MB, number, dtype="u1")) for number in range(8)]
    values = bireme.get(refs)
    assert [int(value[-1]) for value in values] == list(range(8))
    assert all((value == number).all() for number, value in enumerate(values))

    @bireme.remote
    def total(refs: list[Any]) -> int:
        return sum(int(value[0]) for value in bireme.get(refs))

    # The views of this program fill the store: others find room all the same.
    assert bireme.get([total.remote(refs), total.remote(refs)]) == [28, 28]
    del values, refs
    gc.collect()


@STORE
def test_tasks_that_hold_the_store_still_find_room_for_their_results(runtime: Any) -> None:
    large = [bireme.put(numpy.full(13 * MB, number, dtype="u1")) for number in range(4)]

    @bireme.remote
    def double(values: Any) -> Any:
        return numpy.concatenate([values, values])

    results = [double.remote(ref) for ref in large]
    for number, ref in enumerate(results):
        value = bireme.get(ref)
        assert value.shape == (26 * MB,) and (value == number).all()
        del value


@STORE
def test_a_task_that_waits_for_another_leaves_it_room(runtime: Any) -> None:
    shared, other = bireme.put(numpy.ones(20 * MB, dtype="u1")), bireme.put(numpy.ones(20 * MB, dtype="u1"))

    @bireme.remote
    def child(values: Any) -> int:
        return len(values)

    @bireme.remote
    def parent(values: Any, refs: list[Any]) -> int:
        return len(values) + bireme.get(child.remote(refs[0]))

    assert bireme.get([parent.remote(shared, [other]), parent.remote(other, [shared])]) == [40 * MB, 40 * MB]
