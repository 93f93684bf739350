"""Tasks that submit tasks: merge sort, each half in a task of its own."""

import heapq

import bireme
from bireme import ObjectRef

SMALL = 250


@bireme.remote
def merge(left: list[int], right: list[int]) -> list[int]:
    return list(heapq.merge(left, right))


@bireme.remote
def sort(numbers: list[int]) -> list[int]:
    if len(numbers) <= SMALL:
        return sorted(numbers)
    middle = len(numbers) // 2
    # Blocked in `get`, this task gives its CPU to its children.
    return bireme.get(merge.remote(sort.remote(numbers[:middle]), sort.remote(numbers[middle:])))


@bireme.remote
def lengths(sorted_lists: list[ObjectRef[list[int]]]) -> list[int]:
    """References inside a value travel as references: nobody waits for them on the way."""
    return [len(numbers) for numbers in bireme.get(sorted_lists)]


def main() -> None:
    numbers = [n * 2_654_435_761 % 10_007 for n in range(2_000)]
    in_order = sort.remote(numbers)
    assert bireme.get(in_order) == sorted(numbers)
    assert bireme.get(lengths.remote([in_order, in_order])) == [2_000, 2_000]
    print("2000 numbers sorted by tasks that submit tasks")


if __name__ == "__main__":
    main()
