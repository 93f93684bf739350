"""A pool of actors and a queue between producers and a consumer."""
# expect: [0, 1, 4, 9, 16, 25, 36, 49, 64, 81]
# expect: 300 items, each once

import sys

import bireme
from bireme.util import ActorPool
from bireme.util.queue import Queue

bireme.init(*sys.argv[1:])


@bireme.remote
class Squarer:
    def square(self, x):
        return x * x


pool = ActorPool([Squarer.remote() for _ in range(3)])
print(list(pool.map(lambda actor, x: actor.square.remote(x), range(10))))


@bireme.remote
def produce(queue, first):
    for number in range(first, first + 100):
        queue.put(number)


queue = Queue(maxsize=20)
producers = [produce.options(num_cpus=0.1).remote(queue, first) for first in (0, 100, 200)]
items = [queue.get(timeout=60) for _ in range(300)]
bireme.get(producers)
assert sorted(items) == list(range(300))
for first in (0, 100, 200):
    own = [item for item in items if first <= item < first + 100]
    assert own == sorted(own), "the items of one producer keep their order"
print(f"{len(items)} items, each once")
