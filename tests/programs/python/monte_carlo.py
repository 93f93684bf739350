"""Pi by dice, with a seed for each task: the same count wherever it runs; without seeds no two workers agree."""
# expect: 785502 of 1000000
# expect: 8 different draws without seeds

import random
import sys

import numpy

import bireme

bireme.init(*sys.argv[1:])


@bireme.remote
def hits(seed):
    points = numpy.random.default_rng(seed).random((50_000, 2))
    return int(((points**2).sum(axis=1) < 1).sum())


@bireme.remote(max_calls=1)
def draw():
    return random.random(), float(numpy.random.random())


print(sum(bireme.get([hits.remote(seed) for seed in range(20)])), "of 1000000")
draws = bireme.get([draw.remote() for _ in range(8)])
assert len({first for first, _ in draws}) == len({second for _, second in draws}) == 8
print(f"{len(draws)} different draws without seeds")
