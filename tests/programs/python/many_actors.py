"""As many actors as a machine is asked for, each with a state of its own."""
# expect: 200 actors, each counted to 3

import sys

import bireme

bireme.init(*sys.argv[1:])
ACTORS = 200


@bireme.remote
class Counter:
    def __init__(self, start):
        self.value = start

    def add(self):
        self.value += 1
        return self.value


counters = [Counter.remote(number * 10) for number in range(ACTORS)]
for _ in range(2):
    bireme.get([counter.add.remote() for counter in counters])
values = bireme.get([counter.add.remote() for counter in counters])
assert values == [number * 10 + 3 for number in range(ACTORS)]
print(f"{len(counters)} actors, each counted to 3")
