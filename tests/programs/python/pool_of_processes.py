"""A pool of processes with the interface of `multiprocessing.Pool`: an initializer, all kinds of calls, and an error with its type."""
# expect: [10, 11, 14, 19]
# expect: [8, 9]
# expect: ['0', '1', '2', '3', '4']
# expect: ZeroDivisionError division by zero
# expect: 1024
# expect: ended

import sys

import bireme
from bireme.util.multiprocessing import Pool

bireme.init(*sys.argv[1:])

base = None


def begin(value):
    global base
    base = value


def shifted_square(x):
    return base + x * x


with Pool(3, begin, (10,)) as pool:
    print(pool.map(shifted_square, range(4)))
    print(pool.starmap(pow, [(2, 3), (3, 2)]))
    print(sorted(pool.imap_unordered(str, range(5), chunksize=2)))
    try:
        pool.apply(lambda: 1 / 0)
    except ZeroDivisionError as error:
        print(type(error).__name__, error)
    print(pool.apply_async(pow, (2, 10)).get(timeout=60))
pool.join()
print("ended")
