"""Work that is no longer wanted is cancelled, and the CPUs are free again."""
# expect: 6 cancelled, then [0, 1, 2, 3]

import sys
import time

import bireme

bireme.init(*sys.argv[1:])


@bireme.remote
def forever():
    while True:
        time.sleep(0.01)  # a task that is still running


@bireme.remote
def value(x):
    return x


endless = [forever.remote() for _ in range(6)]
for ref in endless:
    bireme.cancel(ref)
cancelled = 0
for ref in endless:
    try:
        bireme.get(ref, timeout=60)
    except bireme.exceptions.TaskCancelledError:
        cancelled += 1
print(f"{cancelled} cancelled, then {bireme.get([value.remote(x) for x in range(4)], timeout=60)}")
