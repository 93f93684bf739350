"""Async actors: many calls at once on one event loop, each waiting for something."""

import asyncio

import bireme


@bireme.remote
class Harbour:
    """Ships wait for a berth; a gate opens when all have come."""

    def __init__(self, berths: int, ships: int) -> None:
        self.berths = asyncio.Semaphore(berths)
        self.expected = ships
        self.gate = asyncio.Event()
        self.moored = 0
        self.most = 0

    async def moor(self, ship: str) -> str:
        self.expected -= 1
        if self.expected == 0:
            self.gate.set()
        # All calls wait here at the same time: one after the other they would wait for ever.
        await self.gate.wait()
        async with self.berths:
            self.moored += 1
            self.most = max(self.most, self.moored)
            await asyncio.sleep(0)
            self.moored -= 1
        return f"{ship} was served"

    async def most_at_once(self) -> int:
        return self.most


async def serve(ships: list[str]) -> int:
    harbour = Harbour.remote(3, len(ships))
    served = await asyncio.gather(*(harbour.moor.remote(ship) for ship in ships))
    assert served == [f"{ship} was served" for ship in ships]
    most: int = await harbour.most_at_once.remote()
    return most


def main() -> None:
    ships = [f"ship {number}" for number in range(20)]
    most = asyncio.run(serve(ships))
    print(f"{len(ships)} ships waited together, and {most} were moored at once")
    assert 1 <= most <= 3


if __name__ == "__main__":
    main()
