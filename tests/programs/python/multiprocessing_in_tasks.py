"""Tasks that fork: a pool of processes inside, and a child that returns from the task's function."""
# expect: [34, 34, 34, 34]
# expect: [0, 1, 2, 3, 4, 5, 6, 7]

import math
import multiprocessing
import os
import sys

import bireme

bireme.init(*sys.argv[1:])


@bireme.remote
def pool():
    with multiprocessing.get_context("fork").Pool(2) as workers:
        return sum(workers.map(math.factorial, range(5)))


@bireme.remote
def fork(number):
    child = os.fork()
    if child:
        os.waitpid(child, 0)
    return number


print(bireme.get([pool.remote() for _ in range(4)]))
print(bireme.get([fork.remote(number) for number in range(8)]))
