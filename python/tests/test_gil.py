"""No thread of the runtime ever takes the interpreter's lock."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from typing import Any

import bireme
from bireme import _native
from bireme.context import Context


@bireme.remote
def square(n: int) -> int:
    print("squares", n)
    return n * n


@bireme.remote
class Plain:
    def add(self, n: int) -> int:
        return n + 1

    def counts(self) -> tuple[int, int]:
        return _native.lock_counts()


@bireme.remote
class Async:
    async def add(self, n: int) -> int:
        return await square.remote(n)

    async def stream(self, n: int) -> Any:
        for k in range(n):
            yield k

    async def counts(self) -> tuple[int, int]:
        return _native.lock_counts()


def test_a_busy_program_never_takes_the_lock_on_a_thread_of_the_runtime(runtime: Context) -> None:
    plain, other = Plain.remote(), Async.remote()

    def work() -> None:
        assert bireme.get([plain.add.remote(n) for n in range(100)]) == list(range(1, 101))

    async def loop() -> list[int]:
        return await asyncio.gather(*[other.add.remote(n) for n in range(50)])

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    futures = [square.remote(n).future() for n in range(50)]
    concurrent.futures.wait(futures)
    assert asyncio.run(loop()) == [n * n for n in range(50)]
    assert [bireme.get(ref) for ref in other.stream.remote(20)] == list(range(20))
    big = [bireme.put(bytes(200_000)) for _ in range(20)]
    bireme.wait(big, num_returns=20)
    del big
    for thread in threads:
        thread.join()
    for entries, trespasses in (_native.lock_counts(), *bireme.get([plain.counts.remote(), other.counts.remote()])):
        assert trespasses == 0
        assert entries >= 0
    assert bireme.get(plain.counts.remote())[0] > 0
