"""A group-by of pandas frames, partitioned by key; the answer is that of one frame."""
# expect: 1000 groups, the same as one frame gives

import sys

import numpy
import pandas

import bireme

bireme.init(*sys.argv[1:])
PARTITIONS = 4


def frame(seed):
    draw = numpy.random.default_rng(seed)
    return pandas.DataFrame({"key": draw.integers(0, 1000, 50_000), "value": draw.integers(0, 100, 50_000)})


@bireme.remote(num_returns=PARTITIONS)
def split(frame):
    return [frame[frame["key"] % PARTITIONS == part] for part in range(PARTITIONS)]


@bireme.remote
def aggregate(*frames):
    return pandas.concat(frames).groupby("key")["value"].agg(["sum", "count", "max"])


frames = [frame(seed) for seed in range(4)]
columns = zip(*(split.remote(bireme.put(frame)) for frame in frames), strict=True)
result = pandas.concat(bireme.get([aggregate.remote(*column) for column in columns])).sort_index()
expected = pandas.concat(frames).groupby("key")["value"].agg(["sum", "count", "max"])
pandas.testing.assert_frame_equal(result, expected)
print(f"{len(result)} groups, the same as one frame gives")
