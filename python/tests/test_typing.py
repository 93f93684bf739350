"""The types of the package, as a type checker sees them from a user's program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import bireme

SAMPLE = Path(__file__).with_name("typed_sample.py")
PACKAGE = Path(bireme.__file__).parent

QUESTIONS = """\
import bireme
from collections.abc import Generator, Iterator

@bireme.remote
def half(n: int) -> float:
    return n / 2

@bireme.remote(num_cpus=2)
def name(n: int) -> str:
    return str(n)

@bireme.remote
def count(n: int) -> Iterator[int]:
    yield n

@bireme.remote
def evens(n: int) -> Generator[int, None, str]:
    yield n
    return "done"

class Plain:
    def add(self, n: int) -> int:
        return n

async def wait_for_it() -> None:
    reveal_type(await half.remote(1))

Remote = bireme.remote(Plain)
reveal_type(half.remote(1))
reveal_type(bireme.get(half.remote(1)))
reveal_type(bireme.get([half.remote(1)]))
reveal_type(bireme.get(half.options(max_retries=0).remote(1)))
reveal_type(bireme.get(name.remote(1)))
reveal_type(bireme.get(bireme.put({"a": 1})))
reveal_type(bireme.wait([half.remote(1)]))
reveal_type(half.remote(1).future())
reveal_type(Remote)
reveal_type(Remote.options(name="plain").remote())
reveal_type(count.remote(1))
reveal_type([bireme.get(ref) for ref in count.remote(1)])
reveal_type(evens.remote(4))
"""

ANSWERS = """\
float
ObjectRef[float]
float
list[float]
float
str
dict[str, int]
tuple[list[ObjectRef[float]], list[ObjectRef[float]]]
Future[float]
ActorClass[Plain]
ActorHandle[Plain]
ObjectRefGenerator[int]
list[int]
ObjectRefGenerator[int]
""".splitlines()

MISTAKES = {
    "bireme.get(3)": "call-overload",
    "wrong: str = bireme.get(half.remote(1))": "assignment",
    "bireme.wait(half.remote(1))": "arg-type",
    "bireme.kill(half)": "arg-type",
    "bireme.init(num_cpus='two')": "arg-type",
    "half.remote(1).value": "attr-defined",
}


def check(folder: Path, *files: Path) -> list[str]:
    environment = dict(os.environ)
    if "site-packages" not in PACKAGE.parts:
        environment["MYPYPATH"] = str(PACKAGE.parent)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary", "--hide-error-context"]
    command += [f"--cache-dir={folder / 'cache'}", *map(str, files)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, timeout=300, check=False)
    assert ran.stderr == ""
    return ran.stdout.splitlines()


def shortened(type_name: str) -> str:
    """Without the modules."""
    words = "".join(each if each.isalnum() or each in "._" else f" {each} " for each in type_name).split()
    return "".join(word.rpartition(".")[2] for word in words).replace(",", ", ")


def test_a_typed_program_passes_the_strict_checker_and_runs(tmp_path: Path) -> None:
    assert check(tmp_path, SAMPLE) == []
    ran = subprocess.run([sys.executable, str(SAMPLE)], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_references_know_the_type_of_their_value(tmp_path: Path) -> None:
    program = tmp_path / "questions.py"
    program.write_text(QUESTIONS)
    revealed = [line.partition("Revealed type is ")[2].strip('"') for line in check(tmp_path, program)]
    assert [shortened(each) for each in revealed] == ANSWERS


def test_mistakes_are_found_before_the_program_runs(tmp_path: Path) -> None:
    program = tmp_path / "mistakes.py"
    program.write_text(QUESTIONS.partition("Remote = ")[0] + "\n".join(MISTAKES) + "\n")
    found = [line for line in check(tmp_path, program) if " error: " in line]
    assert [line.rpartition("[")[2].rstrip("]") for line in found] == list(MISTAKES.values())
