"""Exceptions arrive as what they are, with their text and cause."""
# expect: ConnectionError: no route to the printer
# expect: FileNotFoundError: [Errno 2] No such file or directory: '/nowhere/at/all'
# expect: KeyError: 'missing'
# expect: Shortage: 3 of 5 crates
# expect: UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte
# expect: ValueError: wrong (caused by ZeroDivisionError)

import sys

import bireme

bireme.init(*sys.argv[1:])


class Shortage(Exception):
    def __init__(self, have, want):
        super().__init__(f"{have} of {want} crates")
        self.have, self.want = have, want


def refuse():
    raise ConnectionError("no route to the printer")


def lose():
    open("/nowhere/at/all")


def look_up():
    {}["missing"]


def count():
    raise Shortage(3, 5)


def decode():
    b"\xff".decode()


def chain():
    try:
        1 / 0
    except ZeroDivisionError as error:
        raise ValueError("wrong") from error


for function in (refuse, lose, look_up, count, decode, chain):
    try:
        bireme.get(bireme.remote(function).remote())
    except bireme.exceptions.TaskError as error:
        cause = error.cause
        why = f" (caused by {type(cause.__cause__).__name__})" if cause.__cause__ is not None else ""
        print(f"{type(cause).__name__}: {cause}{why}")
