"""Members of a group sum their gradients; the sum of references is the same."""
# expect: all_reduce [6.0, 6.0], reduce [6.0, 6.0]

import sys

import numpy

import bireme

bireme.init(*sys.argv[1:])


@bireme.remote(num_cpus=0.5)
class Member:
    def sum(self, group, value):
        return group.all_reduce(numpy.full(100_000, value))[:2].tolist()

    def gradient(self, value):
        return numpy.full(100_000, value)


members = [Member.remote() for _ in range(3)]
group = bireme.collective.Group(members)
results = bireme.get([member.sum.remote(group, 1.0 + rank) for rank, member in enumerate(members)])
assert results[0] == results[1] == results[2]
total = bireme.get(bireme.reduce([member.gradient.remote(1.0 + rank) for rank, member in enumerate(members)]))
print(f"all_reduce {results[0]}, reduce {total[:2].tolist()}")
