"""A product of matrices in blocks, the blocks shared through the store."""
# expect: 9 blocks, equal to numpy

import sys

import numpy

import bireme

bireme.init(*sys.argv[1:])
BLOCK, COUNT = 100, 3


@bireme.remote
def multiply(*blocks):
    half = len(blocks) // 2
    return sum(left @ right for left, right in zip(blocks[:half], blocks[half:], strict=True))


draw = numpy.random.default_rng(0)
left, right = (draw.integers(0, 10, (BLOCK * COUNT, BLOCK * COUNT)) for _ in range(2))


def cut(matrix):
    parts = [numpy.hsplit(row, COUNT) for row in numpy.vsplit(matrix, COUNT)]
    return [[bireme.put(numpy.ascontiguousarray(part)) for part in row] for row in parts]


lefts, rights = cut(left), cut(right)
blocks = [[multiply.remote(*lefts[i], *(row[j] for row in rights)) for j in range(COUNT)] for i in range(COUNT)]
product = numpy.block([bireme.get(row) for row in blocks])
assert (product == left @ right).all()
print(f"{COUNT * COUNT} blocks, equal to numpy")
