"""A shuffle of several times the object store: 40 blocks by 10 partitions."""
# modes: embedded
# expect: 10 partitions, 160 MB through a store of 60 MB, no row lost

import numpy

import bireme

bireme.init(object_store_memory=60_000_000)
BLOCKS, PARTITIONS, ROWS = 40, 10, 500_000


@bireme.remote(num_returns=PARTITIONS)
def partition(seed):
    values = numpy.random.default_rng(seed).integers(0, 1 << 40, ROWS)
    order = values % PARTITIONS
    return [values[order == part] for part in range(PARTITIONS)]


@bireme.remote
def merge(part, *parts):
    values = numpy.concatenate(parts)
    assert (values % PARTITIONS == part).all()
    return len(values), int(values.sum())


parts = [partition.remote(seed) for seed in range(BLOCKS)]
merged = bireme.get([merge.remote(part, *(row[part] for row in parts)) for part in range(PARTITIONS)])
expected = sum(int(numpy.random.default_rng(seed).integers(0, 1 << 40, ROWS).sum()) for seed in range(BLOCKS))
assert sum(count for count, _ in merged) == BLOCKS * ROWS
assert sum(total for _, total in merged) == expected
print(f"{len(merged)} partitions, {BLOCKS * ROWS * 8 // 1_000_000} MB through a store of 60 MB, no row lost")
