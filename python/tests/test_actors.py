"""Actors: calls, order, state, classes of every kind, handles, and mistakes."""

from __future__ import annotations

import copy
import functools
import os
import pickle
from typing import Any

import pytest

import bireme
from bireme import exceptions
from bireme.context import Context


@bireme.remote
class Counter:
    """Counts."""

    def __init__(self, start: int = 0) -> None:
        self.total = start

    def add(self, n: int = 1) -> int:
        self.total += n
        return self.total

    def value(self) -> int:
        return self.total

    def pid(self) -> int:
        return os.getpid()


@bireme.remote
class Log:
    def __init__(self) -> None:
        self.entries: list[Any] = []

    def append(self, entry: Any) -> None:
        self.entries.append(entry)

    def read(self) -> list[Any]:
        return self.entries


def test_an_actor_keeps_state_between_calls(runtime: Context) -> None:
    counter = Counter.remote(10)
    assert bireme.get([counter.add.remote(n) for n in (1, 2, 3)]) == [11, 13, 16]
    assert bireme.get(counter.value.remote()) == 16


def test_each_actor_is_a_process_of_its_own(runtime: Context) -> None:
    pids = bireme.get([Counter.remote().pid.remote() for _ in range(3)])
    assert len({*pids, os.getpid()}) == 4


def test_calls_of_one_caller_run_in_order(runtime: Context) -> None:
    log = Log.remote()
    for n in range(500):
        log.append.remote(n)
    assert bireme.get(log.read.remote()) == list(range(500))


def test_a_call_that_waits_for_an_argument_keeps_its_place(runtime: Context) -> None:
    @bireme.remote
    def late(gate: Any) -> str:
        bireme.get(gate[0])
        return "late"

    @bireme.remote
    class Gate:
        async def open(self) -> None: ...

    log, gate = Log.remote(), Gate.remote()
    log.append.remote(late.remote([gate.open.remote()]))
    log.append.remote("early")
    assert bireme.get(log.read.remote()) == ["late", "early"]


def test_callers_do_not_wait_for_each_other(runtime: Context) -> None:
    @bireme.remote
    def write(log: Any, name: str) -> None:
        bireme.get([log.append.remote((name, n)) for n in range(50)])

    log = Log.remote()
    bireme.get([write.remote(log, name) for name in ("a", "b")])
    entries = bireme.get(log.read.remote())
    for name in ("a", "b"):
        assert [n for who, n in entries if who == name] == list(range(50))


def test_arguments_come_in_every_shape(runtime: Context) -> None:
    @bireme.remote
    class Echo:
        def __init__(self, first: Any, *rest: Any, key: Any = None, **others: Any) -> None:
            self.given = (first, rest, key, others)

        def given_at_start(self) -> Any:
            return self.given

        def call(self, /, a: Any, b: Any = 2, *rest: Any, c: Any = 3, **others: Any) -> Any:
            return a, b, rest, c, others

    echo = Echo.remote(1, 2, 3, key=bireme.put(4), x=5)
    assert bireme.get(echo.given_at_start.remote()) == (1, (2, 3), 4, {"x": 5})
    assert bireme.get(echo.call.remote(1)) == (1, 2, (), 3, {})
    assert bireme.get(echo.call.remote(bireme.put(1), 5, 6, c=7, self=8)) == (1, 5, (6,), 7, {"self": 8})


class Animal:
    kingdom = "animals"

    def __init__(self, name: str) -> None:
        self.name = name

    def speak(self) -> str:
        return f"{self.name} says {self.sound()}"

    def sound(self) -> str:
        return "nothing"

    @classmethod
    def family(cls) -> str:
        return f"{cls.__name__} of the {cls.kingdom}"

    @staticmethod
    def legs(pairs: int = 2) -> int:
        return pairs * 2

    @property
    def loud(self) -> bool:
        return False


class Dog(Animal):
    def __init__(self, name: str) -> None:
        super().__init__(name.title())

    def sound(self) -> str:
        return "woof and " + super().sound()

    def __call__(self, command: str) -> str:
        return f"{self.name} does {command}"

    def _private(self) -> str:
        return "private"

    def __len__(self) -> int:
        return 7


def test_inheritance_super_class_methods_and_static_methods_work(runtime: Context) -> None:
    dog = bireme.remote(Dog).remote("rex")
    assert bireme.get(dog.speak.remote()) == "Rex says woof and nothing"
    assert bireme.get(dog.family.remote()) == "Dog of the animals"
    assert bireme.get(dog.legs.remote()) == 4
    assert bireme.get(dog.legs.remote(pairs=3)) == 6


def test_call_and_private_methods_can_be_called(runtime: Context) -> None:
    dog = bireme.remote(Dog).remote("rex")
    assert bireme.get(dog.__call__.remote("sit")) == "Rex does sit"
    assert bireme.get(dog._private.remote()) == "private"
    assert bireme.get(dog.__len__.remote()) == 7


def test_attributes_that_are_no_methods_are_not_found(runtime: Context) -> None:
    dog = bireme.remote(Dog).remote("rex")
    for name in ("loud", "kingdom", "name"):
        with pytest.raises(AttributeError, match=f"has no method '{name}'"):
            getattr(dog, name)


def test_an_unknown_method_is_answered_with_the_nearest_one(runtime: Context) -> None:
    counter = Counter.remote()
    with pytest.raises(AttributeError, match=r"Counter has no method 'valeu'; did you mean 'value'\?"):
        counter.valeu
    with pytest.raises(AttributeError, match="it has add, pid, value"):
        counter.zzz


def test_a_class_without_a_constructor_or_methods_can_be_an_actor(runtime: Context) -> None:
    @bireme.remote
    class Empty:
        pass

    empty = Empty.remote()
    assert bireme.get(empty.__ray_ready__.remote())
    with pytest.raises(AttributeError, match="no methods"):
        empty.anything


def test_an_actor_class_cannot_be_subclassed_as_if_it_were_the_class(runtime: Context) -> None:
    with pytest.raises(TypeError, match="Counter"):

        class Child(Counter):  # type: ignore[misc, valid-type]
            pass


def test_a_remote_class_and_its_methods_are_not_called_directly(runtime: Context) -> None:
    with pytest.raises(TypeError, match=r"use Counter\.remote\(\.\.\.\)"):
        Counter()
    counter = Counter.remote()
    with pytest.raises(TypeError, match=r"use \.add\.remote\(\.\.\.\)"):
        counter.add(1)


def test_wrong_arguments_raise_at_the_callers_line(runtime: Context) -> None:
    with pytest.raises(TypeError, match="start"):
        Counter.remote(begin=1)
    with pytest.raises(TypeError, match="Counter"):
        Counter.remote(1, 2)
    counter = Counter.remote()
    with pytest.raises(TypeError, match=r"Counter\.add"):
        counter.add.remote(1, 2, 3)
    with pytest.raises(TypeError, match="many"):
        counter.add.remote(many=1)
    assert bireme.get(counter.add.remote()) == 1


def test_wrong_arguments_through_a_passed_handle_reach_the_caller(runtime: Context) -> None:
    @bireme.remote
    def call_wrongly(counter: Any) -> str:
        try:
            bireme.get(counter.add.remote(1, 2, 3))
        except TypeError as error:
            return str(error)
        return "no error"

    assert "argument" in bireme.get(call_wrongly.remote(Counter.remote()))


def test_an_exception_leaves_the_actor_as_it_is(runtime: Context) -> None:
    @bireme.remote
    class Fragile:
        def __init__(self) -> None:
            self.calls = 0

        def fail(self) -> None:
            self.calls += 1
            raise KeyError("broken")

        def count(self) -> int:
            return self.calls

    fragile = Fragile.remote()
    with pytest.raises(KeyError) as caught:
        bireme.get(fragile.fail.remote())
    assert isinstance(caught.value, exceptions.TaskError)
    assert "Fragile.fail" in str(caught.value)
    assert bireme.get(fragile.count.remote()) == 1


def test_methods_have_options(runtime: Context) -> None:
    @bireme.remote
    class Splitter:
        @bireme.method(num_returns=2)
        def split(self, pair: tuple[int, int]) -> tuple[int, int]:
            return pair

        def plain(self, n: int) -> list[int]:
            return list(range(n))

    splitter = Splitter.remote()
    first, second = splitter.split.remote((1, 2))
    assert bireme.get([second, first]) == [2, 1]
    assert bireme.get(splitter.plain.options(num_returns=3, name="three").remote(3)) == [0, 1, 2]
    assert bireme.get(splitter.plain.remote(2)) == [0, 1]
    with pytest.raises(ValueError, match="num_returns"):
        splitter.plain.options(num_return=2)
    with pytest.raises(ValueError, match="at least one option"):
        bireme.method()


def test_a_method_with_the_wrong_number_of_results_says_so(runtime: Context) -> None:
    counter = Counter.remote()
    refs = counter.value.options(num_returns=2).remote()
    with pytest.raises(TypeError, match=r"num_returns=2.*not a int"):
        bireme.get(refs)


def test_classes_have_options(runtime: Context) -> None:
    chosen = Counter.options(num_cpus=1, resources={}, max_restarts=1)
    assert bireme.get(chosen.remote(3).value.remote()) == 3
    with pytest.raises(ValueError, match=r"'max_restart'; did you mean 'max_restarts'\?"):
        Counter.options(max_restart=1)
    with pytest.raises(TypeError, match="max_restarts"):
        bireme.remote(max_restarts="many")(Dog)


def test_handles_travel_in_closures_containers_and_actors(runtime: Context) -> None:
    counter = Counter.remote()

    @bireme.remote
    def in_a_closure() -> int:
        return bireme.get(counter.add.remote(1))

    @bireme.remote
    def in_a_container(found: dict[str, list[Any]]) -> int:
        return bireme.get(found["counters"][0].add.remote(10))

    @bireme.remote
    class Keeper:
        def __init__(self, kept: Any) -> None:
            self.kept = kept

        def add(self) -> int:
            return bireme.get(self.kept.add.remote(100))

        def give(self) -> Any:
            return self.kept

    assert bireme.get(in_a_closure.remote()) == 1
    assert bireme.get(in_a_container.remote({"counters": [counter]})) == 11
    keeper = Keeper.remote(counter)
    assert bireme.get(keeper.add.remote()) == 111
    back = bireme.get(keeper.give.remote())
    assert back == counter
    assert bireme.get(back.value.remote()) == 111


def test_bound_methods_travel(runtime: Context) -> None:
    counter = Counter.remote()

    @bireme.remote
    def use(add: Any) -> int:
        return bireme.get(add.remote(5))

    assert bireme.get(use.remote(counter.add)) == 5
    assert bireme.get(use.remote(counter.add.options(name="five"))) == 10


def test_handles_compare_hash_print_and_copy(runtime: Context) -> None:
    one, other = Counter.remote(), Counter.remote()
    same = bireme.get(bireme.put([one]))[0]
    assert same == one and hash(same) == hash(one)
    assert one != other and one != "an actor"
    assert len({one, same, other}) == 2
    assert copy.copy(one) == copy.deepcopy(one) == one
    assert "Counter" in repr(one) and one._actor_id.hex() in repr(one)
    assert {"add", "pid", "value"} <= set(dir(one))


def test_a_handle_pickled_by_the_user_refers_to_the_same_actor(runtime: Context) -> None:
    counter = Counter.remote()
    bireme.get(counter.add.remote(2))
    assert bireme.get(pickle.loads(pickle.dumps(counter)).add.remote(3)) == 5


def test_actors_start_and_call_actors(runtime: Context) -> None:
    @bireme.remote
    class Parent:
        def __init__(self, depth: int) -> None:
            self.child = Parent.remote(depth - 1) if depth else None

        def depth(self) -> int:
            return 0 if self.child is None else 1 + bireme.get(self.child.depth.remote())

    assert bireme.get(Parent.remote(4).depth.remote()) == 4


def test_an_actor_can_leave_calls_for_itself(runtime: Context) -> None:
    @bireme.remote
    class Steps:
        def __init__(self) -> None:
            self.seen: list[int] = []

        def step(self, n: int) -> None:
            self.seen.append(n)
            if n:
                bireme.get_runtime_context().current_actor.step.remote(n - 1)

        def read(self) -> list[int]:
            return self.seen

    steps = Steps.remote()
    bireme.get(steps.step.remote(3))
    seen: list[int] = []
    while len(seen) < 4:
        seen = bireme.get(steps.read.remote())
    assert seen == [3, 2, 1, 0]


def test_a_task_can_return_an_actor_that_it_started(runtime: Context) -> None:
    @bireme.remote
    def start() -> Any:
        counter = Counter.remote(5)
        bireme.get(counter.add.remote())
        return counter

    assert bireme.get(bireme.get(start.remote()).value.remote()) == 6


def test_results_of_calls_are_arguments_of_calls(runtime: Context) -> None:
    one, other = Counter.remote(1), Counter.remote(10)
    total = one.add.remote(other.add.remote(one.add.remote()))
    assert bireme.get(total) == 14


def test_special_methods_are_there_under_both_names(runtime: Context) -> None:
    counter = Counter.remote(4)
    for prefix in ("ray", "bireme"):
        assert bireme.get(getattr(counter, f"__{prefix}_ready__").remote()) is True
        call = getattr(counter, f"__{prefix}_call__")
        assert bireme.get(call.remote(lambda self, n, *, k: self.total + n + k, 3, k=2)) == 9


def test_decorators_on_methods_are_looked_through(runtime: Context) -> None:
    def twice(method: Any) -> Any:
        @functools.wraps(method)
        def call(self: Any, *args: Any) -> Any:
            return method(self, *args) * 2

        return call

    @bireme.remote
    class Decorated:
        @twice
        def one(self) -> int:
            return 1

    assert bireme.get(Decorated.remote().one.remote()) == 2


def test_a_generic_class_and_a_dataclass_can_be_actors(runtime: Context) -> None:
    from dataclasses import dataclass
    from typing import Generic, TypeVar

    T = TypeVar("T")

    @bireme.remote
    @dataclass
    class Box(Generic[T]):
        content: Any = None

        def read(self) -> Any:
            return self.content

    assert bireme.get(Box.remote(content=3).read.remote()) == 3


def test_an_actor_cannot_be_started_or_called_after_the_end() -> None:
    bireme.init(num_cpus=1)
    counter = Counter.remote()
    ref = counter.add.remote()
    assert bireme.get(ref) == 1
    bireme.shutdown()
    with pytest.raises(exceptions.BiremeError):
        counter.add.remote()
    with pytest.raises(exceptions.BiremeError):
        bireme.get(ref)
    assert not bireme.is_initialized()


def test_a_class_is_used_again_after_a_restart_of_the_runtime() -> None:
    for _ in range(2):
        with bireme.init(num_cpus=1):
            assert bireme.get(Counter.remote().add.remote()) == 1
