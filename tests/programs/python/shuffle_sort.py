"""A sort in two stages: every block is cut into ranges, every range is merged."""
# expect: 800000 numbers sorted in 8 ranges

import sys

import numpy

import bireme

bireme.init(*sys.argv[1:])
BLOCKS, RANGES, SIZE = 8, 8, 100_000


@bireme.remote(num_returns=RANGES)
def cut(seed):
    values = numpy.random.default_rng(seed).integers(0, 1 << 40, SIZE)
    bounds = [(1 << 40) * part // RANGES for part in range(1, RANGES)]
    return [part.copy() for part in numpy.split(numpy.sort(values), numpy.searchsorted(numpy.sort(values), bounds))]


@bireme.remote
def merge(*parts):
    return numpy.sort(numpy.concatenate(parts))


blocks = [cut.remote(seed) for seed in range(BLOCKS)]
ranges = bireme.get([merge.remote(*column) for column in zip(*blocks, strict=True)])
result = numpy.concatenate(ranges)
expected = numpy.concatenate([numpy.random.default_rng(seed).integers(0, 1 << 40, SIZE) for seed in range(BLOCKS)])
assert (result == numpy.sort(expected)).all()
print(f"{len(result)} numbers sorted in {len(ranges)} ranges")
