"""Async actors that call each other and wait for each other's results."""
# expect: 50 requests, at most 50 at once, 1275
# expect: 20 parents and 20 children

import asyncio
import sys

import bireme

bireme.init(*sys.argv[1:])


@bireme.remote
class Backend:
    def __init__(self):
        self.now = self.most = 0

    async def serve(self, x):
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.01)  # a task that is still running
        self.now -= 1
        return x

    async def peak(self):
        return self.most


@bireme.remote
class Frontend:
    def __init__(self, backend):
        self.backend = backend

    async def handle(self, x):
        return await self.backend.serve.remote(x)


backend = Backend.remote()
frontend = Frontend.remote(backend)
answers = bireme.get([frontend.handle.remote(x) for x in range(1, 51)])
peak = bireme.get(backend.peak.remote())
assert 1 < peak <= 50
print(f"{len(answers)} requests, at most 50 at once, {sum(answers)}")


@bireme.remote
class Board:
    def note(self, x):
        return x

    def read(self):
        return 1


board = Board.remote()


@bireme.remote
def child():
    return bireme.get(board.read.remote())


@bireme.remote
def parent():
    return bireme.get(board.note.remote(child.remote()))


print(f"{sum(bireme.get([parent.remote() for _ in range(20)]))} parents and 20 children")
