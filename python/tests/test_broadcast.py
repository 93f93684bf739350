"""Values that are sent ahead to nodes: which nodes there are, small and late values, and mistakes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

import bireme
from bireme.exceptions import TaskError

PATIENCE_S = 60.0
# In a message, and in the store.
LENGTHS = [100, 1_000_000]


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    bireme.init(num_cpus=2, object_store_memory=128 << 20)
    yield
    bireme.shutdown()


@bireme.remote
def total(array: Any) -> float:
    return float(array.sum())


@bireme.remote
def ones_after(length: int, gate: str) -> Any:
    # Opening a named pipe waits for the other side.
    with open(gate):
        pass
    return numpy.ones(length)


def node_ids() -> list[str]:
    return [node["NodeID"] for node in bireme.nodes()]


@pytest.mark.parametrize("length", LENGTHS)
def test_a_value_is_sent_to_all_nodes_or_to_those_that_are_named(length: int) -> None:
    ref = bireme.put(numpy.ones(length))
    bireme.broadcast(ref)
    bireme.broadcast(ref, [])
    bireme.broadcast(ref, node_ids())
    bireme.broadcast(ref, tuple(node_ids()))
    assert bireme.get(total.remote(ref), timeout=PATIENCE_S) == length


@pytest.mark.parametrize("length", LENGTHS)
def test_a_value_that_is_not_there_yet_is_sent_when_it_comes(length: int, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    ref = ones_after.remote(length, str(gate))
    bireme.broadcast(ref)
    bireme.broadcast(ref, node_ids())
    assert bireme.wait([ref], timeout=0) == ([], [ref])
    with open(gate, "w"):
        pass
    assert bireme.get(total.remote(ref), timeout=PATIENCE_S) == length


def test_a_value_that_never_comes_is_an_error_where_it_is_read() -> None:
    @bireme.remote(max_retries=0)
    def fail() -> Any:
        raise ValueError("no array today")

    ref = fail.remote()
    bireme.broadcast(ref)
    with pytest.raises(TaskError, match="no array today"):
        bireme.get(ref, timeout=PATIENCE_S)
    bireme.broadcast(ref)


def test_from_a_task() -> None:
    @bireme.remote
    def send() -> float:
        ref = bireme.put(numpy.ones(100_000))
        bireme.broadcast(ref, [node["NodeID"] for node in bireme.nodes()])
        return bireme.get(total.remote(ref))

    assert bireme.get(send.remote(), timeout=PATIENCE_S) == 100_000


@pytest.mark.parametrize("length", LENGTHS)
def test_nodes_that_are_not_there_are_named(length: int) -> None:
    ref = bireme.put(numpy.ones(length))
    for stranger, text in (("000000ff", "not in the cluster"), ("no node", "no node id"), ("", "no node id")):
        with pytest.raises(ValueError, match=text):
            bireme.broadcast(ref, [*node_ids(), stranger])
    with pytest.raises(TypeError, match="a list of node ids"):
        bireme.broadcast(ref, node_ids()[0])
    with pytest.raises(TypeError, match="a list of node ids"):
        bireme.broadcast(ref, [7])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="the reference of a value"):
        bireme.broadcast(numpy.ones(3))  # type: ignore[arg-type]
