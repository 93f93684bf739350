"""k-means over shards in the object store: centres go out, sums come back."""
# expect: 5 centres after 10 rounds, those of one process

import sys

import numpy

import bireme

bireme.init(*sys.argv[1:])


def assign(points, centres):
    nearest = ((points[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
    sums = numpy.zeros_like(centres)
    numpy.add.at(sums, nearest, points)
    return sums, numpy.bincount(nearest, minlength=len(centres))


def move(results):
    sums = sum(result[0] for result in results)
    return sums / numpy.maximum(sum(result[1] for result in results), 1)[:, None]


shards = [numpy.random.default_rng(seed).normal(size=(20_000, 3)).round(3) for seed in range(4)]
refs = [bireme.put(shard) for shard in shards]
remote_assign = bireme.remote(assign)
centres = alone = shards[0][:5].copy()
for _ in range(10):
    ref = bireme.put(centres)
    centres = move(bireme.get([remote_assign.remote(shard, ref) for shard in refs]))
    alone = move([assign(shard, alone) for shard in shards])
assert numpy.array_equal(centres, alone)
print(f"{len(centres)} centres after 10 rounds, those of one process")
