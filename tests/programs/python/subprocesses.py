"""Tasks that start programs: their output, their exit codes, and one that is left running and ends with the job."""
# expect: ['out 0', 'out 1', 'out 2', 'out 3']
# expect: CalledProcessError 3
# expect: a left program runs until the end

import os
import subprocess
import sys

import bireme

bireme.init(*sys.argv[1:])


@bireme.remote
def echo(number):
    return subprocess.run(["sh", "-c", f"echo out {number}"], capture_output=True, text=True, check=True).stdout.strip()


@bireme.remote
def fail():
    subprocess.run(["sh", "-c", "exit 3"], check=True)


@bireme.remote
class Launcher:
    def start(self):
        self.child = subprocess.Popen(["sleep", "1000"])
        return self.child.pid


print(bireme.get([echo.remote(number) for number in range(4)]))
try:
    bireme.get(fail.remote())
except subprocess.CalledProcessError as error:
    print("CalledProcessError", error.returncode)
launcher = Launcher.remote()
os.kill(bireme.get(launcher.start.remote()), 0)
print("a left program runs until the end")
