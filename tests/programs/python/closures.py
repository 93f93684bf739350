"""Closures, lambdas, local classes and decorators, as people write them in scripts."""
# expect: [11, 21, 31] ['a!', 'b!'] Point(x=3, y=4) 5.0 3

import functools
import math
import sys
from dataclasses import dataclass

import bireme

bireme.init(*sys.argv[1:])
offset = 1


@dataclass
class Point:
    x: int
    y: int

    def length(self):
        return math.hypot(self.x, self.y)


def excited(function):
    @functools.wraps(function)
    def inner(*arguments):
        return function(*arguments) + "!"

    return inner


@bireme.remote
@excited
def shout(text):
    return text


@bireme.remote
def make(x, y):
    return Point(x, y)


@bireme.remote
def count(*values, **named):
    return len(values) + len(named)


scaled = bireme.remote(lambda x: 10 * x + offset)
point = bireme.get(make.remote(3, 4))
print(
    bireme.get([scaled.remote(x) for x in (1, 2, 3)]),
    bireme.get([shout.remote(x) for x in "ab"]),
    point,
    point.length(),
    bireme.get(count.remote(1, 2, third=3)),
)
