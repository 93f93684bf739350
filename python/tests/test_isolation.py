"""Tasks and their processes: what one task changes in its process, no other task sees while it runs."""

from __future__ import annotations

import os

import bireme


@bireme.remote
def keep_a_mark(n: int) -> bool:
    os.environ["STEP"] = str(n)
    for _ in range(20):
        bireme.available_resources()
    return os.environ["STEP"] == str(n)


def test_a_task_finds_its_process_as_it_left_it() -> None:
    with bireme.init(num_cpus=1):
        kept = bireme.get([keep_a_mark.remote(n) for n in range(40)])
    assert kept == [True] * 40
