"""Functions and classes of the program itself: scripts, ``python -m``, standard input, ``-c`` and what they define."""

from __future__ import annotations

from typing import Any

PROGRAM = """
    import collections
    import dataclasses
    import enum
    from typing import NamedTuple

    import bireme

    LIMIT = 10

    class Colour(enum.Enum):
        RED = 1
        GREEN = 2

    class Flag(enum.IntFlag):
        A = 1
        B = 2

    class Point(NamedTuple):
        x: int
        y: int

    Pair = collections.namedtuple("Pair", "left right")

    @dataclasses.dataclass
    class Order:
        item: str
        count: int = 1
        kind: Colour = Colour.RED

    class Special(ValueError):
        def __init__(self, order):
            super().__init__(f"bad {order.item}")
            self.order = order

    class Basis:
        def name(self):
            return "basis"

    class Derived(Basis):
        __slots__ = ("value",)

        def __init__(self, value):
            self.value = value

        def name(self):
            return "derived of " + super().name()

        def __eq__(self, other):
            return isinstance(other, Derived) and self.value == other.value

    def plain(n):
        return n + LIMIT

    @bireme.remote
    def give_back(value):
        return value

    @bireme.remote
    def check(colour, point, order, derived):
        assert colour is Colour.RED and isinstance(point, Point) and isinstance(order, Order), (colour, point, order)
        assert isinstance(derived, Derived) and derived.name() == "derived of basis"
        return Order("made there", plain(order.count), Colour.GREEN)

    @bireme.remote
    def fail(order):
        raise Special(order)

    def main():
        values = [Colour.RED, Flag.A | Flag.B, Point(1, 2), Pair(1, 2), Order("a"), Derived(3), [Derived(4)], {Colour.GREEN: 1}]
        for value in values:
            for back in (bireme.get(bireme.put(value)), bireme.get(give_back.remote(value))):
                assert back == value and type(back) is type(value), (back, value)
        assert bireme.get(give_back.remote(Colour.GREEN)) is Colour.GREEN
        assert bireme.get(give_back.remote(Derived)) is Derived and bireme.get(give_back.remote(plain))(1) == 11
        made = bireme.get(check.remote(Colour.RED, Point(1, 2), Order("b"), Derived(1)))
        assert made == Order("made there", 11, Colour.GREEN) and made.kind is Colour.GREEN
        try:
            bireme.get(fail.remote(Order("pear")))
        except Special as error:
            assert error.order == Order("pear") and isinstance(error, bireme.exceptions.TaskError)
            assert "raise Special(order)" in str(error) or "in fail" in str(error), error
        else:
            raise AssertionError("nothing was raised")
        bireme.shutdown()
        print("all is well")
"""
CALL = """
    if __name__ == "__main__":
        main()
"""


def test_a_script_runs_without_and_with_the_usual_guard(program: Any) -> None:
    assert program.run(source=PROGRAM + "    main()\n") == ("all is well\n", "")
    assert program.run(source=PROGRAM + CALL) == ("all is well\n", "")


def test_a_module_of_a_package_runs_with_dash_m(program: Any) -> None:
    program.write("", "shop/__init__.py")
    program.write("def price():\n    return 7\n", "shop/prices.py")
    program.write(PROGRAM + "    from .prices import price\n    assert bireme.get(bireme.remote(lambda: price()).remote()) == 7\n" + CALL, "shop/app.py")
    assert program.run("-m", "shop.app") == ("all is well\n", "")


def test_a_package_runs_with_dash_m(program: Any) -> None:
    program.write("", "shop/__init__.py")
    program.write(PROGRAM + CALL, "shop/__main__.py")
    assert program.run("-m", "shop") == ("all is well\n", "")


def test_a_program_on_standard_input_and_in_dash_c(program: Any) -> None:
    import textwrap

    text = textwrap.dedent(PROGRAM) + "\nmain()\n"
    assert program.run("-", input=text) == ("all is well\n", "")
    assert program.run("-c", text) == ("all is well\n", "")


def test_an_interactive_session_defines_functions_and_classes_again_and_again(program: Any) -> None:
    session = """\
import bireme
@bireme.remote
def f(x): return x + 1

bireme.get(f.remote(1))
@bireme.remote
def f(x): return x * 100

bireme.get(f.remote(2))
class A:
    n = 5

bireme.get(bireme.remote(lambda a: a.n + 1).remote(A()))
bireme.get(bireme.remote(lambda: A().n).remote())
class A:
    n = 9

bireme.get(bireme.remote(lambda: A().n).remote())
bireme.shutdown()
"""
    output, _ = program.run("-i", "-q", input=session)
    assert output.split() == ["2", "200", "6", "5", "9"]


def test_modules_beside_the_script_are_found_by_workers(program: Any) -> None:
    program.write("VALUE = 3\n\nclass Thing:\n    value = 4\n\ndef function():\n    return VALUE\n", "beside.py")
    source = """
        import bireme
        import beside

        @bireme.remote
        def use():
            return beside.function(), beside.Thing()

        three, thing = bireme.get(use.remote())
        assert three == 3 and type(thing) is beside.Thing
        assert bireme.get(bireme.remote(beside.function).remote()) == 3
        bireme.shutdown()
    """
    program.run(source=source)


def test_submodules_that_only_an_inner_function_mentions_are_there_in_workers(program: Any) -> None:
    source = """
        import sys
        import urllib.robotparser
        import xml.dom.minidom

        import bireme

        @bireme.remote
        class Reader:
            def names(self):
                def inner():
                    return (lambda: urllib.robotparser.RobotFileParser.__name__)(), xml.dom.minidom.Document.__name__
                return inner()

        @bireme.remote
        def absent():
            return "xml.dom.minidom" in sys.modules, "xml.dom.minicompat" in sys.modules

        print(bireme.get(absent.remote()), *bireme.get(Reader.remote().names.remote()))
    """
    assert program.run(source=source) == ("(False, False) RobotFileParser Document\n", "")


def test_the_program_is_not_run_again_by_workers(program: Any) -> None:
    source = """
        print("started", flush=True)
        import bireme
        print(bireme.get([bireme.remote(lambda: 5).remote() for _ in range(3)]))
    """
    assert program.run(source=source) == ("started\n[5, 5, 5]\n", "")


def test_functions_of_a_module_that_only_the_driver_has_travel_by_value(program: Any) -> None:
    source = """
        import sys, types
        import bireme
        module = types.ModuleType("only_here")
        exec("import bireme\\n@bireme.remote\\ndef f(x):\\n    return x + 1\\n", module.__dict__)
        sys.modules["only_here"] = module
        print(bireme.get(module.f.remote(1)))
    """
    assert program.run(source=source)[0] == "2\n"
