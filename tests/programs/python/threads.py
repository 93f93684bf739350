"""Threads in the driver and in tasks, all of which call tasks and actors."""
# expect: 8 threads made 400 calls
# expect: a task with 4 threads made 40

import sys
from concurrent.futures import ThreadPoolExecutor

import bireme

bireme.init(*sys.argv[1:])


@bireme.remote
def double(x):
    return 2 * x


@bireme.remote
class Total:
    def __init__(self):
        self.calls = 0

    def add(self):
        self.calls += 1
        return self.calls


total = Total.remote()


def work(thread):
    for number in range(50):
        assert bireme.get(double.remote(thread * 100 + number)) == 2 * (thread * 100 + number)
        total.add.remote()


with ThreadPoolExecutor(8) as pool:
    list(pool.map(work, range(8)))
print(f"8 threads made {bireme.get(total.add.remote()) - 1} calls")


@bireme.remote
def threaded():
    with ThreadPoolExecutor(4) as pool:
        return sum(pool.map(lambda x: bireme.get(double.remote(x)) == 2 * x, range(40)))


print(f"a task with 4 threads made {bireme.get(threaded.remote())}")
