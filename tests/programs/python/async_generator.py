"""An async actor that yields items too large for a message."""
# expect: 20 items of 800000 bytes

import asyncio
import sys

import numpy

import bireme

bireme.init(*sys.argv[1:])


@bireme.remote
class Source:
    async def items(self, count):
        for number in range(count):
            await asyncio.sleep(0)
            yield numpy.full(100_000, number)


async def read():
    seen = []
    async for ref in Source.remote().items.remote(20):
        seen.append(await ref)
    return seen


items = asyncio.run(read())
assert [int(item[-1]) for item in items] == list(range(20))
print(f"{len(items)} items of {items[0].nbytes} bytes")
