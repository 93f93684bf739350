"""A typed program, as users write it: `mypy --strict` finds nothing in it, and it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import bireme
from bireme import ActorHandle, ObjectRef, RemoteFunction


@bireme.remote
def square(x: int) -> int:
    return x * x


@bireme.remote(num_cpus=1, max_retries=0)
def describe(number: int, unit: str = "oars") -> str:
    return f"{number} {unit}"


@bireme.remote
def count_to(n: int) -> Iterator[int]:
    yield from range(1, n + 1)


class Counter:
    """A plain class, and so one that mypy knows: it does not look through decorators of classes."""

    def __init__(self, start: int = 0) -> None:
        self.total = start

    def add(self, n: int) -> int:
        self.total += n
        return self.total


RemoteCounter = bireme.remote(Counter)


def apply_all(function: RemoteFunction[int], numbers: list[int]) -> list[ObjectRef[int]]:
    return [function.remote(number) for number in numbers]


def run_tasks() -> int:
    refs = apply_all(square, [1, 2, 3])
    ready, pending = bireme.wait(refs, num_returns=2)
    first: int = bireme.get(ready[0])
    assert first in (1, 4, 9) and len(pending) == 1
    text: str = bireme.get(describe.options(name="words").remote(refs[2]))
    assert text == "9 oars"
    both: list[int] = bireme.get(refs, timeout=10)
    return sum(both)


def run_objects() -> list[str]:
    ref: ObjectRef[list[str]] = bireme.put(["port", "starboard"])
    return bireme.get(ref, copy=True)


def run_actor() -> int:
    counter: ActorHandle[Counter] = RemoteCounter.options(max_restarts=1).remote(10)
    total: int = bireme.get(counter.add.remote(5))
    bireme.kill(counter)
    return total


def run_generator() -> list[int]:
    return [bireme.get(ref) for ref in count_to.remote(3)]


async def run_futures() -> int:
    return await square.remote(4) + square.remote(5).future().result()


def main() -> None:
    with bireme.init(num_cpus=2):
        assert run_tasks() == 14
        assert run_objects() == ["port", "starboard"]
        assert run_actor() == 15
        assert run_generator() == [1, 2, 3]
        assert asyncio.run(run_futures()) == 41


if __name__ == "__main__":
    main()
