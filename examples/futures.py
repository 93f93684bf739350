"""Futures: references can be awaited, and are futures of concurrent.futures where asked."""

import asyncio
import concurrent.futures

import bireme


@bireme.remote
def fetch(page: int) -> str:
    return f"page {page}"


@bireme.remote
def length(text: str) -> int:
    return len(text)


async def total() -> int:
    first = fetch.remote(1)
    lengths = [length.remote(first), length.remote(fetch.remote(22))]
    print("the first page:", await first)
    return sum([await each for each in lengths])


def main() -> None:
    letters = asyncio.run(total())
    print("two pages have", letters, "letters")
    assert letters == 13
    futures = [fetch.remote(page).future() for page in range(3)]
    done, _ = concurrent.futures.wait(futures)
    assert {future.result() for future in done} == {"page 0", "page 1", "page 2"}


if __name__ == "__main__":
    main()
