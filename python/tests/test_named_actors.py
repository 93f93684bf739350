"""Actors with names, in namespaces."""

from __future__ import annotations

import gc
import os
from typing import Any

import pytest
from conftest import await_condition, await_end

import bireme
from bireme.context import Context
from bireme.util import list_named_actors


@bireme.remote
class Counter:
    def __init__(self, start: int = 0) -> None:
        self.total = start

    def add(self, n: int = 1) -> int:
        self.total += n
        return self.total

    @bireme.method(num_returns=2)
    def both(self) -> tuple[int, int]:
        return self.total, -self.total

    def pid(self) -> int:
        return os.getpid()

    def name(self) -> str | None:
        return bireme.get_runtime_context().get_actor_name()


def test_an_actor_is_found_by_name(runtime: Context) -> None:
    counter = Counter.options(name="counter").remote(3)
    found = bireme.get_actor("counter")
    assert found == counter
    assert bireme.get(found.add.remote()) == 4
    assert bireme.get(found.both.remote()) == [4, -4]
    assert bireme.get(found.name.remote()) == "counter"
    with pytest.raises(AttributeError, match="did you mean 'add'"):
        found.ad


def test_tasks_and_actors_find_it_too(runtime: Context) -> None:
    @bireme.remote
    def add(n: int) -> int:
        return bireme.get(bireme.get_actor("counter").add.remote(n))

    @bireme.remote
    class Finder:
        def add(self, n: int) -> int:
            return bireme.get(bireme.get_actor("counter").add.remote(n))

    counter = Counter.options(name="counter").remote()
    assert bireme.get(add.remote(1)) == 1
    assert bireme.get(Finder.remote().add.remote(2)) == 3
    assert bireme.get(counter.add.remote()) == 4


def test_a_name_is_taken_once(runtime: Context) -> None:
    counter = Counter.options(name="counter").remote()
    with pytest.raises(ValueError, match="'counter' is taken.*get_if_exists"):
        Counter.options(name="counter").remote()
    assert bireme.get(counter.add.remote()) == 1


def test_get_if_exists_gives_the_actor_that_is_there(runtime: Context) -> None:
    shared = Counter.options(name="shared", get_if_exists=True)
    one, other = shared.remote(10), shared.remote(20)
    assert one == other
    assert bireme.get([one.add.remote(), other.add.remote()]) == [11, 12]
    with pytest.raises(ValueError, match="get_if_exists.*name"):
        Counter.options(get_if_exists=True)


def test_get_if_exists_by_many_at_once_gives_one_actor(runtime: Context) -> None:
    @bireme.remote
    def enter(name: str) -> tuple[int, Any]:
        shared = Counter.options(name=name, get_if_exists=True).remote()
        return bireme.get(shared.add.remote()), shared

    for round in range(10):
        counts = [count for count, _ in bireme.get([enter.remote(f"shared {round}") for _ in range(2)])]
        assert sorted(counts) == [1, 2]


@pytest.mark.parametrize("way", ["kill", "handles", "crash"])
def test_a_name_is_free_after_its_actor_is_gone(runtime: Context, way: str) -> None:
    counter = Counter.options(name="counter").remote()
    pid = bireme.get(counter.pid.remote())
    if way == "kill":
        bireme.kill(counter)
    elif way == "crash":
        os.kill(pid, 9)
    else:
        del counter
        gc.collect()
    await_end(pid)

    def is_free() -> bool:
        try:
            bireme.get_actor("counter")
        except ValueError:
            return True
        return False

    await_condition(is_free, "the name to be free")
    again = Counter.options(name="counter").remote(5)
    assert bireme.get(again.add.remote()) == 6
    assert bireme.get(bireme.get_actor("counter").add.remote()) == 7


def test_an_unknown_name_says_so(runtime: Context) -> None:
    with pytest.raises(ValueError, match="no actor named 'nobody'"):
        bireme.get_actor("nobody")
    with pytest.raises(ValueError, match="in namespace 'elsewhere'"):
        bireme.get_actor("nobody", namespace="elsewhere")
    for wrong in ("", 5, None):
        with pytest.raises((ValueError, TypeError), match="name"):
            bireme.get_actor(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("runtime", [{"namespace": "here"}], indirect=True)
def test_namespaces_keep_names_apart(runtime: Context) -> None:
    here = Counter.options(name="counter").remote(1)
    there = Counter.options(name="counter", namespace="there").remote(2)
    assert here != there
    assert bireme.get_actor("counter") == here == bireme.get_actor("counter", namespace="here")
    assert bireme.get_actor("counter", namespace="there") == there
    assert bireme.get_runtime_context().namespace == "here"
    assert bireme.get(there.name.remote()) == "counter"


def test_the_environment_names_the_namespace_of_a_program_that_chose_none(monkeypatch: pytest.MonkeyPatch) -> None:
    @bireme.remote
    def namespace_of_a_task() -> str:
        return bireme.get_runtime_context().namespace

    monkeypatch.setenv("BIREME_NAMESPACE", "told")
    with bireme.init(num_cpus=1):
        assert (bireme.get_runtime_context().namespace, bireme.get(namespace_of_a_task.remote())) == ("told", "told")
    with bireme.init(num_cpus=1, namespace="chosen"):
        assert bireme.get_runtime_context().namespace == "chosen"


@pytest.mark.parametrize("runtime", [{"namespace": "here"}], indirect=True)
def test_tasks_have_the_namespace_of_the_driver(runtime: Context) -> None:
    @bireme.remote
    def start() -> Any:
        return bireme.get_runtime_context().namespace, Counter.options(name="inner").remote(5)

    name, inner = bireme.get(start.remote())
    assert name == "here"
    assert bireme.get_actor("inner", namespace="here") == inner


def test_named_actors_are_listed(runtime: Context) -> None:
    assert list_named_actors() == []
    kept = [Counter.options(name="a").remote(), Counter.options(name="b", namespace="other").remote()]
    bireme.get([each.add.remote() for each in kept])
    assert list_named_actors() == ["a"]
    listed = list_named_actors(all_namespaces=True)
    assert sorted(entry["name"] for entry in listed) == ["a", "b"]
    assert {entry["namespace"] for entry in listed if entry["name"] == "b"} == {"other"}


def test_wrong_names_are_refused(runtime: Context) -> None:
    for wrong in ("", 7):
        with pytest.raises((TypeError, ValueError), match="name"):
            Counter.options(name=wrong)
