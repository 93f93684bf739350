"""A task that waits for another keeps its environment, folder and process."""
# expect: 12 of 12 parents kept what they had

import os
import sys
import tempfile

import bireme

bireme.init(*sys.argv[1:])


@bireme.remote
def child(number):
    os.environ["ROLE"] = f"child {number}"
    os.chdir("/")
    return os.getpid()


@bireme.remote
def parent(number):
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ROLE"] = f"parent {number}"
        os.chdir(folder)
        pid = bireme.get(child.remote(number))
        kept = os.environ["ROLE"] == f"parent {number}" and os.getcwd() == os.path.realpath(folder) and pid != os.getpid()
        os.chdir("/")
        return kept


results = bireme.get([parent.remote(number) for number in range(12)])
print(f"{sum(results)} of {len(results)} parents kept what they had")
