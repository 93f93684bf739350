"""A program that was written for Ray runs with one line changed, and prints what it prints with Ray."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("ray_program.py")

# What the program prints with Ray 2.60, without Ray's own messages.
EXPECTED = """\
resources: 4.0 1 True
task: 11 3
refs as arguments: 23
nested tasks: 21
several results: ['row', 'your', 'boat']
num_returns by option: to and
nested refs: 42
refs in results: inner
closure: driver!
options: 7
runtime context: (True, True, True) None
runtime_env: flying
without it: nothing
values: True
hash: 1
wait: True True
wait with timeout: 0 1
get with timeout: True
cancelled:
future: 15 [11, 12, 13]
error: True True True
error of an argument: True True
crash:
mistake: TypeError
mistake: TypeError
mistake: ValueError
mistake: ValueError
calls in order: [6, 7, 8, 9]
method with two results: [9, -9]
handle in a task: 12
actor id: True
inheritance: derived 42
error of a method: True
named: 100 101
get_if_exists: 102
no such actor:
broken constructor:
killed:
left:
async actor: True
async call cancelled:
threads: [True, True]
async generator: [0, 1, 2]
generator: [3, 2, 1]
streaming: [2, 1]
next: 2 1 end
generator of an actor: [1, 2, 3]
error in the middle: ['first', 'second', 'error']
wait for a generator: True 1
async for: [3, 2, 1]
pool: [0, 0, 0, 0]
pool, unordered: 0
queue: [0, 1, 2, 3, 4] None
empty: True 0
full: True 2
shut down: False
"""


def test_a_program_for_ray_runs_when_its_import_is_changed(tmp_path: Path) -> None:
    lines = PROGRAM.read_text().splitlines()
    assert lines.count("import ray") == 1
    lines[lines.index("import ray")] = "import bireme as ray"
    changed = tmp_path / "program.py"
    changed.write_text("\n".join(lines) + "\n")
    ran = subprocess.run([sys.executable, str(changed)], capture_output=True, text=True, timeout=120, check=False)
    assert ran.stderr == ""
    assert ran.stdout == EXPECTED
    assert ran.returncode == 0
