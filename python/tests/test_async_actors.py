"""Actors with coroutines: overlap, limits, order, exceptions, cancellation."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
from typing import Any

import pytest
from conftest import await_condition

import bireme
from bireme import exceptions
from bireme.context import Context


@bireme.remote
class Meeting:
    """Calls that wait for each other; only calls that overlap can end."""

    def __init__(self) -> None:
        self.waiting = 0
        self.most = 0
        self.order: list[int] = []
        self.gate = asyncio.Event()

    async def meet(self, count: int, number: int = 0) -> int:
        self.order.append(number)
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        if self.waiting == count:
            self.gate.set()
        await self.gate.wait()
        self.waiting -= 1
        return number

    async def open(self) -> None:
        self.gate.set()

    def read(self) -> tuple[int, list[int]]:
        return self.most, self.order


def test_calls_overlap(runtime: Context) -> None:
    meeting = Meeting.remote()
    refs = [meeting.meet.remote(50, n) for n in range(50)]
    assert bireme.get(refs) == list(range(50))
    most, order = bireme.get(meeting.read.remote())
    assert most == 50
    assert order == list(range(50))


def test_max_concurrency_is_kept(runtime: Context) -> None:
    meeting = Meeting.options(max_concurrency=3).remote()
    refs = [meeting.meet.remote(3, n) for n in range(30)]
    assert bireme.get(refs) == list(range(30))
    most, order = bireme.get(meeting.read.remote())
    assert most == 3
    assert order == list(range(30))


def test_one_at_a_time_is_one_at_a_time(runtime: Context) -> None:
    @bireme.remote(max_concurrency=1)
    class Alone:
        def __init__(self) -> None:
            self.inside = 0

        async def enter(self) -> int:
            self.inside += 1
            for _ in range(5):
                await asyncio.sleep(0)
            self.inside -= 1
            return self.inside

    alone = Alone.remote()
    assert bireme.get([alone.enter.remote() for _ in range(20)]) == [0] * 20


def test_plain_methods_and_the_constructor_run_on_the_loop(runtime: Context) -> None:
    @bireme.remote
    class Mixed:
        def __init__(self) -> None:
            self.loop = asyncio.get_running_loop()
            self.thread = threading.get_ident()
            self.ticks = 0
            self.task = asyncio.create_task(self.tick())

        async def tick(self) -> None:
            while True:
                self.ticks += 1
                await asyncio.sleep(0.001)  # a task that is still running

        def plain(self) -> tuple[bool, bool]:
            return asyncio.get_running_loop() is self.loop, threading.get_ident() == self.thread

        async def count(self) -> int:
            return self.ticks

    mixed = Mixed.remote()
    assert bireme.get(mixed.plain.remote()) == (True, True)
    await_condition(lambda: bireme.get(mixed.count.remote()) > 3, "the task that the constructor started")


def test_references_are_awaited_inside_methods(runtime: Context) -> None:
    @bireme.remote
    def square(n: int) -> int:
        return n * n

    @bireme.remote
    class Sums:
        async def sum(self, n: int) -> int:
            return sum(await asyncio.gather(*[square.remote(k) for k in range(n)]))

        async def first(self, refs: list[Any]) -> int:
            done, _ = await asyncio.wait([asyncio.wrap_future(refs[0].future())])
            return done.pop().result() + await refs[1]

        async def broken(self, refs: list[Any]) -> str:
            try:
                await refs[0]
            except ZeroDivisionError as error:
                return type(error).__name__
            return "nothing"

    @bireme.remote
    def divide() -> float:
        return 1 / 0

    sums = Sums.remote()
    assert bireme.get([sums.sum.remote(4), sums.sum.remote(3)]) == [14, 5]
    assert bireme.get(sums.first.remote([square.remote(2), square.remote(3)])) == 13
    assert "ZeroDivisionError" in bireme.get(sums.broken.remote([divide.remote()]))


def test_async_actors_call_themselves_and_others(runtime: Context) -> None:
    @bireme.remote
    class Recursive:
        async def factorial(self, n: int) -> int:
            if n < 2:
                return 1
            me = bireme.get_runtime_context().current_actor
            return n * await me.factorial.remote(n - 1)

    assert bireme.get(Recursive.remote().factorial.remote(10)) == 3628800


def test_exceptions_reach_the_caller_and_the_actor_goes_on(runtime: Context) -> None:
    @bireme.remote
    class Fragile:
        async def fail(self) -> None:
            await asyncio.sleep(0)
            raise LookupError("lost")

        async def stop(self) -> None:
            raise StopIteration

        def fail_plainly(self) -> None:
            raise LookupError("plain")

        async def work(self) -> str:
            return "fine"

    fragile = Fragile.remote()
    with pytest.raises(LookupError, match="lost") as caught:
        bireme.get(fragile.fail.remote())
    assert isinstance(caught.value, exceptions.TaskError)
    assert "in fail" in str(caught.value)
    with pytest.raises(LookupError, match="plain"):
        bireme.get(fragile.fail_plainly.remote())
    with pytest.raises(exceptions.TaskError, match="StopIteration"):
        bireme.get(fragile.stop.remote())
    assert bireme.get(fragile.work.remote()) == "fine"


def test_each_coroutine_knows_its_own_call(runtime: Context) -> None:
    @bireme.remote
    class Who:
        def __init__(self) -> None:
            self.both = asyncio.Barrier(2)

        async def task(self) -> tuple[str | None, str | None, str | None]:
            context = bireme.get_runtime_context()
            before = context.get_task_id()
            await self.both.wait()
            assert context.get_task_id() == before

            async def inner() -> str | None:
                return context.get_task_id()

            assert await asyncio.create_task(inner()) == before
            return before, context.get_task_name(), context.get_actor_id()

    who = Who.remote()
    one, other = bireme.get([who.task.remote(), who.task.remote()])
    assert one[0] != other[0]
    assert one[1] == other[1] == "Who.task"
    assert one[2] == other[2] == who._actor_id


def test_context_variables_do_not_leak_between_calls(runtime: Context) -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)

    @bireme.remote
    class Holder:
        def __init__(self) -> None:
            self.variable = contextvars.ContextVar("variable", default=0)

        async def set(self, n: int) -> int:
            found = self.variable.get()
            self.variable.set(n)
            return found

    del variable
    holder = Holder.remote()
    assert bireme.get([holder.set.remote(1), holder.set.remote(2)]) == [0, 0]


def test_a_cancelled_call_gets_cancelled_error_and_others_go_on(runtime: Context) -> None:
    @bireme.remote
    class Patient:
        def __init__(self) -> None:
            self.began = 0
            self.ended: list[str] = []
            self.gate = asyncio.Event()

        async def wait(self) -> str:
            self.began += 1
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.ended.append("cancelled")
                raise
            return "opened"

        async def open(self) -> None:
            self.gate.set()

        async def state(self) -> tuple[int, list[str]]:
            return self.began, self.ended

    patient = Patient.remote()
    first, second = patient.wait.remote(), patient.wait.remote()
    await_condition(lambda: bireme.get(patient.state.remote())[0] == 2, "two calls that wait")
    bireme.cancel(first)
    with pytest.raises(exceptions.TaskCancelledError):
        bireme.get(first)
    await_condition(lambda: bireme.get(patient.state.remote())[1] == ["cancelled"], "the end of the cancelled call")
    bireme.get(patient.open.remote())
    assert bireme.get(second) == "opened"


def test_a_call_that_swallows_its_cancellation_returns(runtime: Context) -> None:
    @bireme.remote
    class Stubborn:
        def __init__(self) -> None:
            self.began = False

        async def wait(self) -> str:
            self.began = True
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return "I stay"
            return "never"

        async def has_begun(self) -> bool:
            return self.began

    stubborn = Stubborn.remote()
    ref = stubborn.wait.remote()
    await_condition(lambda: bireme.get(stubborn.has_begun.remote()), "the call")
    bireme.cancel(ref)
    assert bireme.get(ref) == "I stay"
    assert bireme.get(stubborn.has_begun.remote())


def test_exit_actor_works_in_a_coroutine(runtime: Context) -> None:
    @bireme.remote
    class Leaver:
        async def leave(self) -> None:
            await asyncio.sleep(0)
            bireme.exit_actor()

    leaver = Leaver.remote()
    with pytest.raises(exceptions.ActorDiedError, match="by itself"):
        bireme.get(leaver.leave.remote())
    with pytest.raises(exceptions.ActorDiedError, match="by itself"):
        bireme.get(leaver.leave.remote())


def test_special_methods_work_in_async_actors(runtime: Context) -> None:
    meeting = Meeting.remote()
    assert bireme.get(meeting.__ray_ready__.remote())
    assert bireme.get(meeting.__ray_call__.remote(lambda self: self.waiting)) == 0
    with pytest.raises(exceptions.ActorDiedError):
        bireme.get(meeting.__ray_terminate__.remote())


def test_generators_of_async_actors_stream(runtime: Context) -> None:
    @bireme.remote
    class Streams:
        async def count(self, n: int) -> Any:
            for k in range(n):
                await asyncio.sleep(0)
                yield k

        def plain(self, n: int) -> Any:
            yield from range(n)

        async def other(self) -> str:
            return "other"

    streams = Streams.remote()
    assert [bireme.get(ref) for ref in streams.count.remote(5)] == [0, 1, 2, 3, 4]
    assert [bireme.get(ref) for ref in streams.plain.remote(3)] == [0, 1, 2]
    assert bireme.get(streams.other.remote()) == "other"


def test_an_async_constructor_error_reaches_the_first_call(runtime: Context) -> None:
    @bireme.remote
    class Broken:
        def __init__(self) -> None:
            raise OSError("no disk")

        async def call(self) -> None: ...

    broken = Broken.remote()
    with pytest.raises(exceptions.ActorDiedError, match="no disk"):
        bireme.get(broken.call.remote())


def test_a_driver_awaits_calls(runtime: Context) -> None:
    meeting = Meeting.remote()

    async def main() -> list[int]:
        return await asyncio.gather(*[meeting.meet.remote(4, n) for n in range(4)])

    assert asyncio.run(main()) == [0, 1, 2, 3]


def test_a_thousand_calls_go_through(runtime: Context) -> None:
    @bireme.remote
    class Echo:
        async def echo(self, n: int) -> int:
            await asyncio.sleep(0)
            return n

    echo = Echo.remote()
    assert bireme.get([echo.echo.remote(n) for n in range(3000)]) == list(range(3000))


@pytest.mark.parametrize("method", ["leave", "leave_plainly", "interrupt"])
def test_an_exception_that_ends_programs_ends_only_its_call(runtime: Context, method: str) -> None:
    @bireme.remote
    class Rash:
        async def leave(self) -> None:
            sys.exit(3)

        def leave_plainly(self) -> None:
            sys.exit(3)

        async def interrupt(self) -> None:
            raise KeyboardInterrupt

        async def leave_in_the_background(self) -> None:
            asyncio.get_running_loop().call_soon(sys.exit, 3)

        async def work(self) -> str:
            return "fine"

    rash = Rash.remote()
    with pytest.raises(exceptions.TaskError):
        bireme.get(getattr(rash, method).remote())
    bireme.get(rash.leave_in_the_background.remote())
    assert bireme.get(rash.work.remote()) == "fine"
