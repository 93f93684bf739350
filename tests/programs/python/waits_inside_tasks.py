"""Tasks that wait through thread pools and event loops of their own, more of them than there are CPUs."""
# expect: 8 tasks with thread pools: 280
# expect: 8 tasks with event loops: 280
# expect: 8 tasks with futures: 280
# expect: 8 tasks with threads that take from streams: 280

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor, wait

import bireme

bireme.init(*sys.argv[1:])


@bireme.remote
def double(x):
    return 2 * x


@bireme.remote
def count_up(x):
    yield from range(2 * x)


@bireme.remote
def with_pool(x):
    with ThreadPoolExecutor(3) as pool:
        return sum(pool.map(lambda y: bireme.get(double.remote(x + y)), range(3))) // 3 + 26


@bireme.remote
def with_event_loop(x):
    async def main():
        return sum(await asyncio.gather(*(double.remote(x + y) for y in range(3))))

    return asyncio.run(main()) // 3 + 26


@bireme.remote
def with_futures(x):
    futures = [double.remote(x + y).future() for y in range(3)]
    wait(futures)
    return sum(future.result() for future in futures) // 3 + 26


@bireme.remote
def with_streams(x):
    with ThreadPoolExecutor(3) as pool:
        counts = pool.map(lambda y: len([bireme.get(item) for item in count_up.remote(x + y)]), range(3))
        return sum(counts) // 3 + 26


for name, task in [
    ("thread pools", with_pool),
    ("event loops", with_event_loop),
    ("futures", with_futures),
    ("threads that take from streams", with_streams),
]:
    print(f"8 tasks with {name}: {sum(bireme.get([task.remote(x) for x in range(8)]))}")
