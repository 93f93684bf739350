"""Calls of one caller run in their order, from the driver and from tasks, with and without waiting arguments."""
# expect: 3 callers, 500 calls each, all in order

import sys

import bireme

bireme.init(*sys.argv[1:])


@bireme.remote
class Log:
    def __init__(self):
        self.entries = {}

    def note(self, caller, number):
        self.entries.setdefault(caller, []).append(number)

    def read(self):
        return self.entries


@bireme.remote
def identity(x):
    return x


log = Log.remote()


@bireme.remote
def caller(name):
    for number in range(500):
        log.note.remote(name, identity.remote(number) if number % 100 == 0 else number)
    bireme.get(log.note.remote(name, 500))


others = [caller.remote(name) for name in ("a", "b")]
for number in range(500):
    log.note.remote("driver", identity.remote(number) if number % 100 == 0 else number)
bireme.get(others)
entries = bireme.get(log.read.remote())
assert entries["driver"] == list(range(500))
assert entries["a"] == entries["b"] == list(range(501))
print(f"{len(entries)} callers, 500 calls each, all in order")
