"""Gradients are applied as they come: `wait` gives the first, and its worker starts the next."""
# expect: 100 gradients applied

import sys
from collections import Counter

import numpy

import bireme

bireme.init(*sys.argv[1:])


@bireme.remote
class Worker:
    def __init__(self, rank):
        self.rank = rank

    def gradient(self, parameters):
        return self.rank, numpy.ones_like(parameters)


workers = [Worker.remote(rank) for rank in range(3)]
bireme.get([worker.__ray_ready__.remote() for worker in workers])
parameters = numpy.zeros(1000)
pending = {worker.gradient.remote(parameters): worker for worker in workers}
given = Counter()
for _ in range(100):
    (first,), _ = bireme.wait(list(pending))
    worker = pending.pop(first)
    rank, gradient = bireme.get(first)
    given[rank] += 1
    parameters += gradient
    pending[worker.gradient.remote(parameters)] = worker
assert (parameters == 100).all()
assert set(given) <= {0, 1, 2}
print(f"{given.total()} gradients applied")
