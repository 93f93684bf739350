"""Output of workers comes out at the driver, whole lines, each once."""
# order: any
# expect: (greet pid=...) hello from 0
# expect: (greet pid=...) hello from 1
# expect: (greet pid=...) hello from 2

import sys

import bireme

bireme.init(*sys.argv[1:])


@bireme.remote
def greet(number):
    print(f"hello from {number}")


bireme.get([greet.remote(number) for number in range(3)])
