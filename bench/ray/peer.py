"""What Ray takes when it is warm, for `bireme bench --collectives --peers`: medians, on the last line.

    peer.py call BYTES NODES [NAMESPACE=ADDRESS...]        microseconds of a call of an actor on another node with so many bytes there
                                                           and back: one after the other, and with a pause before each
    peer.py broadcast BYTES NODES [NAMESPACE=ADDRESS...]   milliseconds until all other nodes have an object of the first; the better
                                                           one of broadcasts with a pause before each and without

The nodes are on these hosts of a network lab, of which this script runs on the first; without hosts on this machine.
"""

import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import numpy
import ray
from ray.cluster_utils import Cluster

# Of the first node of a lab, where no other is.
PORT = 6379
PAUSE = 0.2
CALLS, PAUSED_CALLS = 500, 40
BROADCASTS = 5
# On hosts of a lab, where one takes seconds.
LAB_BROADCASTS = 2


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

    def once():
        return took(lambda: ray.get(seats[1].echo.remote(value)))

    # Warm: these do not count.
    median(CALLS // 5, 0, once)
    return median(CALLS, 0, once) * 1e6, median(PAUSED_CALLS, PAUSE, once) * 1e6


def broadcast(seats, size, count):
    def once(pause):
        value = seats[0].make.remote(size)
        ray.wait([value], fetch_local=False)
        time.sleep(pause)
        return took(lambda: ray.get([seat.take.remote(value) for seat in seats[1:]]))

    return (min(median(count, 0, lambda pause=pause: once(pause)) for pause in (PAUSE, 0)) * 1e3,)


def resources(node):
    return {f"seat{node}": 1}


@contextlib.contextmanager
def here(nodes, memory):
    """So many nodes on this machine."""
    cluster = Cluster()
    try:
        for node in range(nodes):
            cluster.add_node(num_cpus=1, object_store_memory=memory, resources=resources(node))
        cluster.wait_for_nodes()
        yield {"address": cluster.address}
    finally:
        cluster.shutdown()


@contextlib.contextmanager
def on_hosts(hosts, memory):
    """A node on each host of a lab, given as pairs of a namespace and an address."""
    # Not where another Ray on this machine looks for a running cluster.
    folder = tempfile.mkdtemp(prefix="bireme-ray-", dir="/tmp")
    head = f"{hosts[0][1]}:{PORT}"
    first = ["--head", f"--port={PORT}", "--include-dashboard=false", f"--temp-dir={folder}"]
    try:
        for node, (namespace, address) in enumerate(hosts):
            command = [os.path.join(os.path.dirname(sys.executable), "ray"), "start", f"--node-ip-address={address}"]
            command += [f"--object-store-memory={memory}", "--num-cpus=1", f"--resources={json.dumps(resources(node))}"]
            command += first if node == 0 else [f"--address={head}"]
            subprocess.run(["ip", "netns", "exec", namespace, *command], check=True, stdout=subprocess.DEVNULL)
        yield {"address": head, "_node_ip_address": hosts[0][1]}
    finally:
        for namespace, _ in hosts:
            end_all(namespace)
        shutil.rmtree(folder, ignore_errors=True)


def end_all(namespace):
    listed = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, check=False)
    for process in map(int, listed.stdout.split()):
        # One that ended meanwhile is as good.
        with contextlib.suppress(ProcessLookupError):
            if process != os.getpid():
                os.kill(process, signal.SIGKILL)


def main():
    what, size, nodes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    hosts = [host.split("=") for host in sys.argv[4:]]
    memory = max(200 << 20, 8 * size)
    with on_hosts(hosts, memory) if hosts else here(nodes, memory) as found:
        ray.init(**found, logging_level="error", log_to_driver=False)
        seats = [Seat.options(resources={f"seat{node}": 0.1}).remote() for node in range(nodes)]
        ray.get([seat.nothing.remote() for seat in seats])
        took = call(seats, size) if what == "call" else broadcast(seats, size, LAB_BROADCASTS if hosts else BROADCASTS)
        print(*took, flush=True)
        ray.shutdown()


if __name__ == "__main__":
    main()
