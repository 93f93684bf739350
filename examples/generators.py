"""Generators: results that come one by one, held back when their reader is slow, ended when it has enough."""

import asyncio
from collections.abc import Iterator

import bireme
from bireme import ObjectRefGenerator


@bireme.remote
def primes(limit: int) -> Iterator[int]:
    found: list[int] = []
    for n in range(2, limit):
        if all(n % prime for prime in found):
            found.append(n)
            yield n


@bireme.remote(max_buffered_items=2)
def tide() -> Iterator[str]:
    """Never ends: it is at most two items ahead of its reader."""
    while True:
        yield "high"
        yield "low"


@bireme.remote
def leaky(planks: int) -> Iterator[str]:
    for plank in range(planks):
        yield f"plank {plank}"
    raise RuntimeError("out of planks")


@bireme.remote
def total(numbers: ObjectRefGenerator[int]) -> int:
    """A generator can be passed on: this task reads while the other one writes."""
    return sum(bireme.get(ref) for ref in numbers)


async def collect() -> list[int]:
    return [await ref async for ref in primes.remote(12)]


def main() -> None:
    print("primes:", [bireme.get(ref) for ref in primes.remote(20)])
    print("their sum, made by another task:", bireme.get(total.remote(primes.remote(20))))
    assert asyncio.run(collect()) == [2, 3, 5, 7, 11]

    tides = tide.remote()
    seen = [bireme.get(next(tides)) for _ in range(4)]
    bireme.cancel(tides)
    print("four tides of many:", seen)
    assert seen == ["high", "low", "high", "low"]

    laid: list[str] = []
    try:
        for ref in leaky.remote(2):
            laid.append(bireme.get(ref))
    except RuntimeError as error:
        print("after", laid, "came:", str(error).splitlines()[-1])
    assert laid == ["plank 0", "plank 1"]


if __name__ == "__main__":
    main()
