"""A program for Ray's core API. It prints the same with Ray and with Bireme; only the next line differs."""

import ray

import asyncio
import importlib
import os
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

ActorPool = ray.util.ActorPool
# Ray does not import this one by itself.
queues = importlib.import_module(f"{ray.__name__}.util.queue")

HERE = "driver"


def report(topic: str, *found: Any) -> None:
    print(f"{topic}:", *found, flush=True)


class Shallow(Exception):
    """An error of the program's own."""

    def __init__(self, depth: int) -> None:
        super().__init__(depth)
        self.depth = depth


@ray.remote
def add(a: int, b: int = 10) -> int:
    return a + b


@ray.remote
def fibonacci(n: int) -> int:
    if n < 2:
        return n
    return sum(ray.get([fibonacci.remote(n - 1), fibonacci.remote(n - 2)]))


@ray.remote(num_returns=3)
def split(text: str) -> list[str]:
    return text.split()


@ray.remote
def total(refs: dict[str, Any]) -> int:
    assert all(isinstance(ref, ray.ObjectRef) for ref in refs.values())
    return sum(ray.get(list(refs.values())))


@ray.remote
def dive(depth: int) -> int:
    if depth < 5:
        raise Shallow(depth)
    return depth


@ray.remote
def pass_on(value: Any) -> Any:
    return value


@ray.remote(max_retries=0)
def crash() -> None:
    os._exit(7)


@ray.remote
def spin() -> None:
    ended = threading.Event()
    while not ended.wait(0.01):
        pass


@ray.remote
def read_variable(name: str) -> str:
    return os.environ.get(name, "nothing")


@ray.remote
def who() -> tuple[bool, bool, bool]:
    context = ray.get_runtime_context()
    return context.get_task_id() is not None, context.get_actor_id() is None, context.get_node_id() != ""


@ray.remote
def countdown(n: int) -> Iterator[int]:
    while n:
        yield n
        n -= 1


@ray.remote
def break_in_the_middle() -> Iterator[str]:
    yield "first"
    yield "second"
    raise Shallow(2)


@ray.remote
class Counter:
    def __init__(self, start: int = 0) -> None:
        self.count = start

    def add(self, n: int = 1) -> int:
        self.count += n
        return self.count

    @ray.method(num_returns=2)
    def both(self) -> tuple[int, int]:
        return self.count, -self.count

    def count_up(self, n: int) -> Iterator[int]:
        for _ in range(n):
            self.count += 1
            yield self.count

    def fail(self) -> None:
        raise Shallow(self.count)

    def identity(self) -> str:
        return str(ray.get_runtime_context().get_actor_id())

    def leave(self) -> None:
        ray.actor.exit_actor()


class Named:
    kind = "named"

    @classmethod
    def kind_of(cls) -> str:
        return cls.kind

    @staticmethod
    def twice(n: int) -> int:
        return 2 * n


@ray.remote
class Derived(Named):
    kind = "derived"

    def describe(self) -> str:
        return f"{self.kind_of()} {self.twice(21)}"


@ray.remote
class Broken:
    def __init__(self) -> None:
        raise Shallow(0)

    def never(self) -> None:
        pass


@ray.remote
class Meeting:
    """Calls that wait for each other: only together they end."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.arrived = 0
        self.complete = asyncio.Event()

    async def join(self) -> int:
        self.arrived += 1
        if self.arrived == self.size:
            self.complete.set()
        await self.complete.wait()
        return self.arrived

    async def count(self, n: int) -> AsyncIterator[int]:
        for number in range(n):
            await asyncio.sleep(0)
            yield number

    async def wait_for_ever(self) -> None:
        await asyncio.Event().wait()


@ray.remote(max_concurrency=2)
class Threads:
    def __init__(self) -> None:
        self.barrier = threading.Barrier(2)

    def meet(self) -> bool:
        self.barrier.wait()
        return True


@ray.remote
def use_counter(counter: Any, times: int) -> int:
    return [ray.get(counter.add.remote()) for _ in range(times)][-1]


@ray.remote
def use_named_counter() -> int:
    return int(ray.get(ray.get_actor("tally").add.remote(100)))


@ray.remote
def produce(queue: Any, n: int) -> None:
    for number in range(n):
        queue.put(number)


def tasks() -> None:
    report("task", ray.get(add.remote(1)), ray.get(add.remote(1, b=2)))
    report("refs as arguments", ray.get(add.remote(add.remote(1), add.remote(2))))
    report("nested tasks", ray.get(fibonacci.remote(8)))
    report("several results", ray.get(split.remote("row your boat")))
    first, second = split.options(num_returns=2).remote("to and")
    report("num_returns by option", ray.get(first), ray.get(second))
    report("nested refs", ray.get(total.remote({"a": add.remote(1, 1), "b": ray.put(40)})))
    report("refs in results", ray.get(ray.get(pass_on.remote([ray.put("inner")]))[0]))
    report("closure", ray.get(ray.remote(lambda: HERE + "!").remote()))
    report("options", ray.get(add.options(num_cpus=0.5, max_retries=1, name="sum").remote(3, 4)))
    report("runtime context", ray.get(who.remote()), ray.get_runtime_context().get_actor_id())
    variables = {"env_vars": {"PROGRAM_FLAG": "flying"}}
    report("runtime_env", ray.get(read_variable.options(runtime_env=variables).remote("PROGRAM_FLAG")))
    report("without it", ray.get(read_variable.remote("PROGRAM_FLAG")))


def objects() -> None:
    values: list[Any] = [None, 1, 2.5, "text", b"bytes", (1, [2, {3: {4}}]), 10**30]
    report("values", ray.get([ray.put(value) for value in values]) == values)
    ref = ray.put("same")
    report("hash", len({ref, ray.get(pass_on.remote([ref]))[0]}))
    quick, slow = add.remote(1), spin.remote()
    ready, pending = ray.wait([slow, quick])
    report("wait", ready == [quick], pending == [slow])
    ready, pending = ray.wait([slow], timeout=0.05)
    report("wait with timeout", len(ready), len(pending))
    try:
        ray.get(slow, timeout=0.05)
    except ray.exceptions.GetTimeoutError as error:
        report("get with timeout", isinstance(error, TimeoutError))
    ray.cancel(slow)
    try:
        ray.get(slow)
    except ray.exceptions.TaskCancelledError:
        report("cancelled")
    report("future", add.remote(5).future().result(), asyncio.run(await_two()))


async def await_two() -> list[int]:
    both = await asyncio.gather(add.remote(1), add.remote(2))
    done, pending = await asyncio.wait([asyncio.wrap_future(add.remote(3).future())])
    assert not pending
    return [*both, *(task.result() for task in done)]


def errors() -> None:
    try:
        ray.get(dive.remote(3))
    except Shallow as error:
        kinds = (ray.exceptions.RayTaskError, ray.exceptions.RayError)
        report("error", *(isinstance(error, kind) for kind in kinds), "dive" in str(error))
    try:
        ray.get(pass_on.remote(dive.remote(1)))
    except ray.exceptions.RayTaskError as error:
        report("error of an argument", isinstance(error.cause, Shallow), isinstance(error, Shallow))
    try:
        ray.get(crash.remote())
    except ray.exceptions.WorkerCrashedError:
        report("crash")
    for mistake in (lambda: add(1), lambda: add.remote(), lambda: ray.get(1), lambda: ray.wait([quick, quick])):
        quick = ray.put(1)
        try:
            mistake()
        except (TypeError, ValueError) as error:
            report("mistake", type(error).__name__)


def actors() -> None:
    counter = Counter.remote(5)
    report("calls in order", ray.get([counter.add.remote() for _ in range(4)]))
    report("method with two results", ray.get(counter.both.remote()))
    report("handle in a task", ray.get(use_counter.remote(counter, 3)))
    report("actor id", ray.get(counter.identity.remote()) == counter._actor_id.hex())
    report("inheritance", ray.get(Derived.remote().describe.remote()))
    try:
        ray.get(counter.fail.remote())
    except Shallow as error:
        report("error of a method", isinstance(error, ray.exceptions.RayTaskError))
    tally = Counter.options(name="tally").remote()
    report("named", ray.get(use_named_counter.remote()), ray.get(ray.get_actor("tally").add.remote()))
    same = Counter.options(name="tally", get_if_exists=True).remote()
    report("get_if_exists", ray.get(same.add.remote()))
    try:
        ray.get_actor("nobody")
    except ValueError:
        report("no such actor")
    try:
        ray.get(Broken.remote().never.remote())
    except ray.exceptions.RayActorError:
        report("broken constructor")
    ray.kill(tally)
    try:
        ray.get(tally.add.remote())
    except ray.exceptions.RayActorError:
        report("killed")
    try:
        ray.get(counter.leave.remote())
    except ray.exceptions.RayActorError:
        report("left")


def async_actors() -> None:
    meeting = Meeting.remote(10)
    report("async actor", ray.get([meeting.join.remote() for _ in range(10)]) == [10] * 10)
    waiting = meeting.wait_for_ever.remote()
    ray.cancel(waiting)
    try:
        ray.get(waiting)
    except (ray.exceptions.TaskCancelledError, ray.exceptions.RayTaskError):
        report("async call cancelled")
    threads = Threads.remote()
    report("threads", ray.get([threads.meet.remote(), threads.meet.remote()]))
    report("async generator", [ray.get(ref) for ref in meeting.count.options(num_returns="streaming").remote(3)])


def generators() -> None:
    report("generator", [ray.get(ref) for ref in countdown.remote(3)])
    report("streaming", [ray.get(ref) for ref in countdown.options(num_returns="streaming").remote(2)])
    stream = countdown.remote(2)
    report("next", ray.get(next(stream)), ray.get(next(stream)), next(stream, "end"))
    counter = Counter.remote()
    report("generator of an actor", [ray.get(ref) for ref in counter.count_up.remote(3)])
    found: list[str] = []
    try:
        for ref in break_in_the_middle.remote():
            found.append(ray.get(ref))
    except Shallow:
        found.append("error")
    report("error in the middle", found)
    stream = countdown.remote(1)
    ready, _ = ray.wait([stream])
    report("wait for a generator", ready == [stream], ray.get(next(stream)))
    report("async for", asyncio.run(collect()))


async def collect() -> list[int]:
    return [await ref async for ref in countdown.remote(3)]


def tools() -> None:
    pool = ActorPool([Counter.remote(), Counter.remote()])
    report("pool", sorted(pool.map(lambda actor, n: actor.add.remote(0 * n), range(4))))
    report("pool, unordered", sum(pool.map_unordered(lambda actor, n: actor.add.remote(0 * n), range(4))))
    queue = queues.Queue(maxsize=2)
    produced = produce.remote(queue, 5)
    report("queue", [queue.get() for _ in range(5)], ray.get(produced))
    try:
        queue.get_nowait()
    except queues.Empty:
        report("empty", queue.empty(), queue.qsize())
    queue.put_nowait_batch(["a", "b"])
    try:
        queue.put("c", timeout=0.01)
    except queues.Full:
        report("full", queue.full(), queue.size())
    queue.shutdown()


def main() -> None:
    ray.init(num_cpus=4, log_to_driver=False)
    report("resources", ray.cluster_resources()["CPU"], len(ray.nodes()), ray.is_initialized())
    for part in (tasks, objects, errors, actors, async_actors, generators, tools):
        part()
    ray.shutdown()
    report("shut down", ray.is_initialized())


if __name__ == "__main__":
    main()
