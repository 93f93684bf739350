"""Tasks that set limits and process state of their own: open files, address space, umask, recursion."""
# expect: open files 64, memory error, umask 0o77, recursion stopped

import os
import resource
import sys

import bireme

bireme.init(*sys.argv[1:])


@bireme.remote(max_calls=1)
def open_files():
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    opened = []
    try:
        while True:
            opened.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    finally:
        for descriptor in opened:
            os.close(descriptor)


@bireme.remote(max_calls=1)
def address_space():
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 100_000_000, used + 100_000_000))
    return len(bytearray(1_000_000_000))


@bireme.remote
def mask():
    previous = os.umask(0o077)
    try:
        return oct(os.umask(0o077))
    finally:
        os.umask(previous)


@bireme.remote
def recurse():
    return recurse_forever()


def recurse_forever():
    return 1 + recurse_forever()


files = bireme.get(open_files.remote())
try:
    bireme.get(address_space.remote())
except MemoryError:
    memory = "memory error"
try:
    bireme.get(recurse.remote())
except RecursionError:
    stopped = "recursion stopped"
print(f"open files {files}, {memory}, umask {bireme.get(mask.remote())}, {stopped}")
