"""Where programs run: scripts, modules, the prompt, notebooks; functions and classes of `__main__` everywhere."""

from __future__ import annotations

import subprocess

from conftest import Program

PROGRAM = """
    import dataclasses
    import bireme

    @dataclasses.dataclass
    class Point:
        x: int
        def double(self):
            return Point(self.x * 2)

    OFFSET = 10

    def helper(n):
        return n + OFFSET

    @bireme.remote
    def shift(point):
        return Point(helper(point.double().x))

    @bireme.remote
    class Keeper:
        def __init__(self, point):
            self.point = point
        def read(self):
            return self.point

    keeper = Keeper.remote(shift.remote(Point(1)))
    print(bireme.get(keeper.read.remote()), type(bireme.get(keeper.read.remote())) is Point)
"""
EXPECTED = "Point(x=12) True\n"


def test_a_script(program: Program) -> None:
    assert program.run(source=PROGRAM) == (EXPECTED, "")


def test_a_script_with_a_main_guard(program: Program) -> None:
    guarded = """
    import bireme

    @bireme.remote
    def name():
        return __name__

    if __name__ == "__main__":
        print(bireme.get(name.remote()))
    """
    assert program.run(source=guarded) == ("__main__\n", "")


def test_a_module_of_a_package(program: Program) -> None:
    program.write("", "package/__init__.py")
    program.write("VALUE = 5\n", "package/constants.py")
    program.write(
        """
        import bireme
        from .constants import VALUE

        @bireme.remote
        def read():
            from .constants import VALUE as inner
            return VALUE, inner

        print(bireme.get(read.remote()))
        """,
        "package/run.py",
    )
    program.write(
        """
        import bireme
        from package import constants

        @bireme.remote
        def read():
            return constants.VALUE

        print(bireme.get(read.remote()))
        """,
        "package/other.py",
    )
    assert program.run("-m", "package.other") == ("5\n", "")
    assert program.run("-m", "package.run") == ("(5, 5)\n", "")


def test_a_program_from_standard_input(program: Program) -> None:
    import textwrap

    output, errors = program.run("-", input=textwrap.dedent(PROGRAM))
    assert (output, errors) == (EXPECTED, "")


def test_the_prompt(program: Program) -> None:
    typed = """import bireme
@bireme.remote
def square(n):
    return n * n

bireme.get([square.remote(n) for n in range(4)])
@bireme.remote
class Counter:
    total = 0
    def add(self, n):
        self.total += n
        return self.total

counter = Counter.remote()
bireme.get([counter.add.remote(2), counter.add.remote(3)])
def square(n): return -n

square = bireme.remote(square)
bireme.get(square.remote(3))
"""
    output, _ = program.run("-i", "-q", input=typed, env={"PYTHONSTARTUP": ""}, stderr=subprocess.STDOUT)
    assert "[0, 1, 4, 9]" in output and "[2, 5]" in output and "-3" in output
    assert "Traceback" not in output


def test_a_command_line(program: Program) -> None:
    source = "import bireme; f = bireme.remote(lambda n: n + 1); print(bireme.get(f.remote(1)))"
    assert program.run("-c", source) == ("2\n", "")


def test_a_notebook(program: Program) -> None:
    """Cells run with exec in the module `__main__`, with an event loop that is running."""
    output, errors = program.run(source="""
    import asyncio, sys

    space = sys.modules["__main__"].__dict__
    cells = [
        "import bireme",
        "@bireme.remote\\ndef square(n):\\n    return helper(n)",
        "def helper(n):\\n    return n * n",
        "print(bireme.get(square.remote(3)))",
        "class Point:\\n    def __init__(self, x): self.x = x",
        "print(bireme.get(bireme.put(Point(4))).x)",
        "def helper(n):\\n    return -n",
        "@bireme.remote\\ndef square(n):\\n    return helper(n)",
        "print(bireme.get(square.remote(3)))",
    ]

    async def notebook():
        for cell in cells:
            exec(compile(cell, "<cell>", "exec"), space)
        print(await space["square"].remote(5))

    asyncio.run(notebook())
    """)
    assert (output, errors) == ("9\n4\n-3\n-5\n", "")


def test_a_thread_that_is_not_the_main_one(program: Program) -> None:
    output, errors = program.run(source="""
    import threading
    import bireme

    def work():
        bireme.init(num_cpus=1)
        print(bireme.get(bireme.remote(lambda: 5).remote()))
        bireme.shutdown()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    """)
    assert (output, errors) == ("5\n", "")


def test_a_program_that_forgets_to_shut_down_ends_cleanly(program: Program) -> None:
    output, errors = program.run(source="""
    import bireme

    @bireme.remote
    class Actor:
        async def wait(self):
            import asyncio
            await asyncio.Event().wait()

    actor = Actor.remote()
    ref = actor.wait.remote()
    future = ref.future()
    big = bireme.put(bytes(10_000_000))
    view = bireme.get(big)
    print("end")
    """)
    assert (output, errors) == ("end\n", "")


def test_a_program_that_raises_ends_with_its_traceback_only(program: Program) -> None:
    process = program.start(source="""
    import bireme

    @bireme.remote
    def fail():
        raise KeyError("lost")

    bireme.get(fail.remote())
    """)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 1 and output == ""
    assert errors.startswith("Traceback") and "lost" in errors.splitlines()[-1] + errors
    assert "bireme.get(fail.remote())" in errors and 'raise KeyError("lost")' in errors


def test_a_user_module_beside_the_script_is_found_by_workers(program: Program) -> None:
    program.write("def triple(n):\n    return 3 * n\n", "beside.py")
    output, errors = program.run(source="""
    import beside
    import bireme

    @bireme.remote
    def run(n):
        return beside.triple(n)

    direct = bireme.remote(beside.triple)
    print(bireme.get([run.remote(2), direct.remote(3)]))
    """)
    assert (output, errors) == ("[6, 9]\n", "")


def test_preloaded_modules_are_there_before_the_first_task(program: Program) -> None:
    output, _ = program.run(source="""
    import sys
    import bireme

    bireme.init(num_cpus=1, preload=["decimal"])

    @bireme.remote
    def is_loaded():
        import sys
        return "decimal" in sys.modules

    print(bireme.get(is_loaded.remote()))
    """)
    assert output == "True\n"


def test_python_options_reach_the_workers(program: Program) -> None:
    program.write("""
    import sys
    import bireme

    @bireme.remote
    def flags():
        import sys
        return sys.flags.optimize, sys.flags.dont_write_bytecode

    print(bireme.get(flags.remote()) == (sys.flags.optimize, sys.flags.dont_write_bytecode), sys.flags.optimize)
    """, "flags.py")
    assert program.run("-OO", "-B", "flags.py")[0] == "True 2\n"
