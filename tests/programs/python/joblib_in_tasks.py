"""joblib inside of tasks, with processes of its own; nothing of it stays in shared memory."""
# expect: [285, 1285, 2285]

import sys

import joblib

import bireme

bireme.init(*sys.argv[1:])


def square(x):
    return x * x


@bireme.remote
def squares(base):
    return base + sum(joblib.Parallel(n_jobs=2)(joblib.delayed(square)(x) for x in range(10)))


print(bireme.get([squares.remote(base) for base in (0, 1000, 2000)]))
