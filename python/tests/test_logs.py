"""What workers print arrives at the driver's output, named."""

from __future__ import annotations

import io
import re
import sys
from typing import Any

import pytest
from conftest import Program

import bireme

HELLO = """
    import os, sys
    import bireme

    @bireme.remote
    def hello(n):
        print("hello", n)
        return os.getpid()
"""


def lines_of(output: str) -> list[str]:
    return output.splitlines()


def test_prints_arrive_with_name_and_process(program: Program) -> None:
    output, errors = program.run(source=HELLO + """
    pid = bireme.get(hello.remote(1))
    bireme.shutdown()
    print(pid)
    """)
    pid = re.search(r"^(\d+)$", output, re.M)
    assert pid is not None
    assert f"(hello pid={pid[1]}) hello 1" in lines_of(output)
    assert errors == ""


def test_standard_error_arrives_at_standard_error(program: Program) -> None:
    output, errors = program.run(source="""
    import sys
    import bireme

    @bireme.remote
    class Talker:
        def __init__(self):
            print("made", file=sys.stderr)
        def talk(self):
            sys.stderr.write("said\\n")

    talker = Talker.remote()
    bireme.get(talker.talk.remote())
    """)
    assert output == ""
    assert re.fullmatch(r"\(Talker pid=(\d+)\) made\n\(Talker pid=\1\) said\n", errors)


def test_unfinished_lines_unicode_and_many_lines_arrive(program: Program) -> None:
    output, _ = program.run(source="""
    import sys
    import bireme

    @bireme.remote
    def talk():
        print("grüße 漢字 🚀")
        sys.stdout.write("no end of line")

    @bireme.remote
    def count():
        for n in range(300):
            print("line", n)

    bireme.get(talk.remote())
    bireme.get(count.remote())
    """)
    assert "grüße 漢字 🚀" in output
    assert "no end of line" in output
    found = [int(n) for n in re.findall(r"line (\d+)$", output, re.M)]
    assert found == list(range(300))


def test_native_output_and_child_processes_arrive(program: Program) -> None:
    output, _ = program.run(source="""
    import os, subprocess
    import bireme

    @bireme.remote
    def native():
        os.write(1, b"from the descriptor\\n")
        subprocess.run(["echo", "from a child"])

    bireme.get(native.remote())
    """)
    assert "from the descriptor" in output and "from a child" in output


def test_the_same_line_of_many_workers_is_printed_once_with_a_count(program: Program) -> None:
    output, errors = program.run(source="""
    import bireme

    @bireme.remote
    class Same:
        def say(self):
            print("all of us say the same")

    same = [Same.remote() for _ in range(4)]
    bireme.get([each.say.remote() for each in same])
    bireme.shutdown()
    """)
    first, second = lines_of(output)
    assert first.endswith("all of us say the same")
    assert second.endswith("all of us say the same [repeated 3x across workers]")
    assert errors == ""


def test_silence_is_one_option_away(program: Program) -> None:
    output, errors = program.run(source="""
    import sys
    import bireme

    bireme.init(log_to_driver=False)

    @bireme.remote
    def talk():
        print("never seen")
        print("never seen", file=sys.stderr)

    bireme.get(talk.remote())
    """)
    assert (output, errors) == ("", "")


def test_what_a_crashing_worker_printed_appears(program: Program) -> None:
    output, errors = program.run(source="""
    import os, sys
    import bireme

    @bireme.remote(max_retries=0)
    def crash():
        print("last words")
        print("last complaint", file=sys.stderr)
        os._exit(3)

    try:
        bireme.get(crash.remote())
    except bireme.exceptions.WorkerCrashedError:
        print("crashed")
    bireme.shutdown()
    """)
    assert "last words" in output and "crashed" in output
    assert "last complaint" in errors


def test_a_healthy_program_prints_nothing_of_its_own(program: Program) -> None:
    output, errors = program.run(source="""
    import bireme

    @bireme.remote
    def square(n):
        return n * n

    @bireme.remote
    class Counter:
        def add(self):
            return 1

    @bireme.remote
    class Async:
        async def add(self):
            return 1

    assert bireme.get([square.remote(n) for n in range(10)]) == [n * n for n in range(10)]
    counter, other = Counter.remote(), Async.remote()
    assert bireme.get([counter.add.remote(), other.add.remote()]) == [1, 1]
    """)
    assert (output, errors) == ("", "")


def test_prints_go_where_the_drivers_prints_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a notebook, which replaces the standard streams."""

    @bireme.remote
    def talk() -> None:
        print("for the notebook")

    replaced: Any = io.StringIO()
    monkeypatch.setattr(sys, "stdout", replaced)
    with bireme.init(num_cpus=1):
        bireme.get(talk.remote())
    assert re.fullmatch(r"\(talk pid=\d+\) for the notebook\n", replaced.getvalue())


def test_prints_are_captured_by_pytest(capsys: pytest.CaptureFixture[str]) -> None:
    @bireme.remote
    def talk() -> None:
        print("captured")
        print("captured too", file=sys.stderr)

    with bireme.init(num_cpus=1):
        bireme.get(talk.remote())
    output, errors = capsys.readouterr()
    assert "captured\n" in output and "captured too\n" in errors


def test_a_closed_standard_output_does_no_harm(program: Program) -> None:
    program.run(source="""
    import sys
    import bireme

    @bireme.remote
    def talk():
        print("nobody hears")
        return 1

    sys.stdout.close()
    sys.stdout = None
    assert bireme.get(talk.remote()) == 1
    bireme.shutdown()
    """)


def test_logging_of_workers_arrives(program: Program) -> None:
    _, errors = program.run(source="""
    import logging
    import bireme

    @bireme.remote
    def warn():
        logging.warning("careful")

    bireme.get(warn.remote())
    """)
    assert re.fullmatch(r"\(warn pid=\d+\) WARNING:root:careful\n", errors)
