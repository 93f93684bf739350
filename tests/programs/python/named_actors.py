"""A detached actor is found by name by a second program."""
# modes: cluster
# expect: the second program found 42
# expect: and it is gone after kill

import subprocess
import sys

import bireme

NAME = "shared-counter"
if len(sys.argv) > 2:
    bireme.init(sys.argv[1], namespace="programs")
    print(bireme.get(bireme.get_actor(NAME).read.remote()))
    sys.exit()

bireme.init(*sys.argv[1:], namespace="programs")


@bireme.remote
class Counter:
    def __init__(self, value):
        self.value = value

    def read(self):
        return self.value


counter = Counter.options(name=NAME, lifetime="detached").remote(42)
bireme.get(counter.read.remote())
said = subprocess.run([sys.executable, __file__, *sys.argv[1:], "second"], capture_output=True, text=True, check=True)
print("the second program found", said.stdout.strip())
bireme.kill(counter)
try:
    bireme.get(counter.read.remote(), timeout=60)
except bireme.exceptions.ActorDiedError:
    print("and it is gone after kill")
