"""Tasks that wait for tasks, many more than there are CPUs."""
# expect: fib(9) = 34, depth 30

import sys

import bireme

bireme.init(*sys.argv[1:])


@bireme.remote
def fib(n):
    if n < 2:
        return n
    return sum(bireme.get([fib.remote(n - 1), fib.remote(n - 2)]))


@bireme.remote
def descend(depth):
    return 0 if depth == 0 else 1 + bireme.get(descend.remote(depth - 1))


print(f"fib(9) = {bireme.get(fib.remote(9))}, depth {bireme.get(descend.remote(30))}")
