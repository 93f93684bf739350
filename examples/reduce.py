"""Reduce and broadcast: arrays that many tasks make become one, as they arrive and where they are, and go to all nodes again."""

import numpy

import bireme
from bireme.exceptions import ReduceError

WEIGHTS = 200_000


@bireme.remote
def gradient(weights: numpy.ndarray, shard: int) -> numpy.ndarray:
    """What one worker found."""
    return weights * numpy.float32(shard + 1)


def main() -> None:
    bireme.init()
    weights = bireme.put(numpy.ones(WEIGHTS, dtype=numpy.float32))
    gradients = [gradient.remote(weights, shard) for shard in range(4)]

    # A reference, at once: the gradients are combined as they come.
    mean = bireme.reduce(gradients, "mean")
    assert bireme.get(mean)[0] == 2.5

    # On to the nodes that will read it, before anybody there asks: reduce and broadcast are an all-reduce.
    bireme.broadcast(mean)
    bireme.broadcast(weights, [node["NodeID"] for node in bireme.nodes()])
    assert bireme.get(gradient.remote(mean, 1))[0] == 5

    # The first three that are ready, whichever they are.
    fastest = bireme.reduce(gradients, count=3)
    print("the fastest three were", bireme.reduced_from(fastest))

    # Results feed other reduces, and a fixed order gives equal bits every time.
    largest = bireme.reduce([mean, fastest], "max", order="fixed")
    assert bireme.get(largest).shape == (WEIGHTS,)

    # What cannot be reduced says why.
    try:
        bireme.get(bireme.reduce([mean, bireme.put(numpy.ones(7))]))
    except ReduceError as error:
        print("refused:", error)
    else:
        raise AssertionError("they are of different shapes")


if __name__ == "__main__":
    main()
