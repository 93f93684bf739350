"""Tasks whose worker dies or whose network fails run again; each result is there once."""
# expect: 12 results after 4 deaths and 4 errors

import os
import signal
import sys
import tempfile

import bireme

bireme.init(*sys.argv[1:])


@bireme.remote(max_retries=2, retry_exceptions=[ConnectionError])
def flaky(folder, number):
    first = f"{folder}/{number}"
    try:
        os.close(os.open(first, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return number
    if number % 3 == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    if number % 3 == 1:
        raise ConnectionError("the first time fails")
    return number


with tempfile.TemporaryDirectory() as folder:
    assert bireme.get([flaky.remote(folder, number) for number in range(12)]) == list(range(12))
print("12 results after 4 deaths and 4 errors")
