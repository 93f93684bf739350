"""Tasks that run out of memory or are killed: an error that says so, and the others go on."""
# expect: MemoryError
# expect: WorkerCrashedError
# expect: the others: 45

import os
import signal
import sys

import bireme

bireme.init(*sys.argv[1:])


@bireme.remote(max_retries=0)
def allocate():
    return len(bytearray(1 << 50))


@bireme.remote(max_retries=0)
def killed():
    os.kill(os.getpid(), signal.SIGKILL)


@bireme.remote
def value(x):
    return x


others = [value.remote(x) for x in range(10)]
for task in (allocate, killed):
    try:
        bireme.get(task.remote())
    except (MemoryError, bireme.exceptions.WorkerCrashedError) as error:
        kinds = (MemoryError, bireme.exceptions.WorkerCrashedError)
        print(next(kind.__name__ for kind in kinds if isinstance(error, kind)))
print("the others:", sum(bireme.get(others)))
