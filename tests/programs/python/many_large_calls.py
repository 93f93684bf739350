"""Many calls with arguments of 60 KB: none is lost, each actor sees all of its own."""
# expect: 10 actors, 2000 calls, 120000000 bytes

import sys

import bireme

bireme.init(*sys.argv[1:])


@bireme.remote
class Sink:
    def __init__(self):
        self.calls = self.bytes = 0

    def take(self, number, data):
        assert number == self.calls, f"call {number} came as {self.calls}"
        self.calls += 1
        self.bytes += len(data)
        return number

    def totals(self):
        return self.calls, self.bytes


sinks = [Sink.remote() for _ in range(10)]
data = bytes(60_000)
refs = [sink.take.remote(number, data) for number in range(200) for sink in sinks]
assert bireme.get(refs) == [number for number in range(200) for _ in sinks]
totals = bireme.get([sink.totals.remote() for sink in sinks])
print(f"{len(sinks)} actors, {sum(calls for calls, _ in totals)} calls, {sum(size for _, size in totals)} bytes")
