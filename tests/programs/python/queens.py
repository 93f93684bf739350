"""Eight queens, the search split over nested tasks."""
# expect: 92 solutions

import sys

import bireme

bireme.init(*sys.argv[1:])
SIZE = 8


def safe(columns, column):
    row = len(columns)
    return all(other != column and abs(other - column) != row - at for at, other in enumerate(columns))


def count(columns):
    if len(columns) == SIZE:
        return 1
    return sum(count((*columns, column)) for column in range(SIZE) if safe(columns, column))


@bireme.remote
def search(columns):
    if len(columns) == 2:
        return count(columns)
    return sum(bireme.get([search.remote((*columns, column)) for column in range(SIZE) if safe(columns, column)]))


print(bireme.get(search.remote(())), "solutions")
