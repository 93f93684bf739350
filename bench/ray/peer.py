"""What Ray takes on this machine, for `bireme bench --collectives --peers`: two numbers on the last line, each a median.

    peer.py call BYTES        microseconds of a call of an actor on another node without data, after a pause, which is what the
                              recorded figure is; then of calls with so many bytes there and back, one after the other
    peer.py broadcast BYTES   milliseconds until four other nodes have an object of the first, after a pause; then without pauses

Five nodes on this machine, as for the recorded figures.
"""

import os
import statistics
import sys
import time

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import numpy
import ray
from ray.cluster_utils import Cluster

NODES = 5
PAUSE = 0.2
CALLS, PAUSED_CALLS = 500, 40
BROADCASTS = 5


@ray.remote(num_cpus=0)
class Seat:
    """One per node."""

    def nothing(self):
        return None

    def echo(self, value):
        return value

    def make(self, count):
        return numpy.ones(count, dtype=numpy.uint8)

    def take(self, value):
        return len(value)


def median(count, pause, action):
    taken = []
    # The first one does not count.
    for _ in range(count + 1):
        time.sleep(pause)
        taken.append(action())
    return statistics.median(taken[1:])


def took(action):
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def call(seats, size):
    value = bytes(size)
    paused = median(PAUSED_CALLS, PAUSE, lambda: took(lambda: ray.get(seats[1].nothing.remote())))
    hot = median(CALLS, 0, lambda: took(lambda: ray.get(seats[1].echo.remote(value))))
    return paused * 1e6, hot * 1e6


def broadcast(seats, size):
    def once(pause):
        value = seats[0].make.remote(size)
        ray.wait([value], fetch_local=False)
        time.sleep(pause)
        return took(lambda: ray.get([seat.take.remote(value) for seat in seats[1:]]))

    return tuple(median(BROADCASTS, 0, lambda pause=pause: once(pause)) * 1e3 for pause in (PAUSE, 0))


def main():
    what, size = sys.argv[1], int(sys.argv[2])
    cluster = Cluster()
    try:
        for node in range(NODES):
            resources = {f"seat{node}": 1}
            cluster.add_node(num_cpus=1, object_store_memory=max(200 << 20, 8 * size), resources=resources)
        cluster.wait_for_nodes()
        ray.init(address=cluster.address, logging_level="error", log_to_driver=False)
        seats = [Seat.options(resources={f"seat{node}": 0.1}).remote() for node in range(NODES)]
        ray.get([seat.nothing.remote() for seat in seats])
        print(*{"call": call, "broadcast": broadcast}[what](seats, size), flush=True)
        ray.shutdown()
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
