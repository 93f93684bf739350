"""Three stages joined by generators, each with back-pressure."""
# expect: 60 frames passed, the sum is 3540000

import sys

import numpy

import bireme

bireme.init(*sys.argv[1:])


@bireme.remote(max_buffered_items=4)
def decode(count):
    for number in range(count):
        yield numpy.full(50_000, number)


@bireme.remote(max_buffered_items=4)
def scale(frames):
    for frame in frames:
        yield bireme.get(frame) * 2


@bireme.remote
def total(frames):
    count, result = 0, 0
    for frame in frames:
        count += 1
        result += int(bireme.get(frame)[::50].sum())
    return count, result


frames, result = bireme.get(total.options(num_cpus=0.1).remote(scale.options(num_cpus=0.1).remote(decode.remote(60))))
print(f"{frames} frames passed, the sum is {result}")
