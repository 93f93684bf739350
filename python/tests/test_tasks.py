"""Remote functions as users write them: forms, options, results, retries, nesting, errors."""

from __future__ import annotations

import functools
import os
import signal
from pathlib import Path
from typing import Any

import pytest

import bireme
from bireme import exceptions

SOURCE = Path(__file__)


@bireme.remote
def add(a: int, b: int = 1) -> int:
    return a + b


@bireme.remote
def fail(error: BaseException) -> None:
    raise error


def test_a_function_gives_a_reference_at_once_and_its_result_later(runtime: Any) -> None:
    ref = add.remote(1, b=2)
    assert isinstance(ref, bireme.ObjectRef)
    assert bireme.get(ref) == 3
    assert bireme.get([add.remote(n) for n in range(500)]) == list(range(1, 501))


def test_the_first_use_starts_the_runtime() -> None:
    assert not bireme.is_initialized()
    assert bireme.get(add.remote(1)) == 2
    assert bireme.is_initialized()
    bireme.shutdown()


def test_functions_survive_a_restart_of_the_runtime() -> None:
    for _ in range(2):
        bireme.init(num_cpus=1)
        assert bireme.get(add.remote(1)) == 2
        bireme.shutdown()


def test_a_remote_function_is_not_called_directly_but_keeps_what_it_was(runtime: Any) -> None:
    with pytest.raises(TypeError, match=r"add\.remote\(\.\.\.\)"):
        add(1)
    assert add.function(1) == 2
    assert (add.__name__, add.__doc__, add.__module__) == ("add", None, __name__)
    assert "add" in repr(add)


def test_closures_lambdas_partials_methods_and_callables_are_functions_too(runtime: Any) -> None:
    factor = 3

    def multiply(x: int) -> int:
        return x * factor

    class Shop:
        price = 4

        def total(self, count: int) -> int:
            return self.price * count

        @classmethod
        def name(cls) -> str:
            return cls.__name__

        @staticmethod
        def twice(x: int) -> int:
            return 2 * x

        def __call__(self, x: int) -> int:
            return x + self.price

    forms: list[tuple[Any, tuple[Any, ...], Any]] = [
        (multiply, (2,), 6),
        (lambda x: x + factor, (2,), 5),
        (functools.partial(multiply, 5), (), 15),
        (functools.partial(add.function, b=10), (1,), 11),
        (Shop().total, (2,), 8),
        (Shop.name, (), "Shop"),
        (Shop.twice, (4,), 8),
        (Shop(), (1,), 5),
        (len, ([1, 2],), 2),
    ]
    for target, args, expected in forms:
        assert bireme.get(bireme.remote(target).remote(*args)) == expected, target


def test_a_closure_is_taken_when_the_function_is_first_called(runtime: Any) -> None:
    box = {"value": 1}

    @bireme.remote
    def read() -> int:
        return box["value"]

    box["value"] = 2
    assert bireme.get(read.remote()) == 2


def test_functions_call_themselves_and_each_other(runtime: Any) -> None:
    @bireme.remote
    def fibonacci(n: int) -> int:
        return n if n < 2 else sum(bireme.get([fibonacci.remote(n - 1), fibonacci.remote(n - 2)]))

    @bireme.remote
    def even(n: int) -> bool:
        return True if n == 0 else bireme.get(odd.remote(n - 1))

    @bireme.remote
    def odd(n: int) -> bool:
        return False if n == 0 else bireme.get(even.remote(n - 1))

    assert bireme.get(fibonacci.remote(8)) == 21
    assert bireme.get(even.remote(6)) is True


def test_a_function_that_calls_itself_has_one_code_in_every_process(runtime: Any) -> None:
    @bireme.remote
    def codes(depth: int) -> list[int]:
        mine = hash_of(codes)
        return [mine] if depth == 0 else [mine, *bireme.get(codes.remote(depth - 1))]

    def hash_of(function: Any) -> int:
        return int(function._prepare().key)

    assert set(bireme.get(codes.remote(4))) == {hash_of(codes)}


def test_a_task_submits_tasks_puts_objects_and_passes_references_on(runtime: Any) -> None:
    @bireme.remote
    def inner(x: int) -> int:
        return x + 1

    @bireme.remote
    def outer() -> tuple[Any, list[Any]]:
        return bireme.put("made inside"), [inner.remote(n) for n in range(3)]

    made, refs = bireme.get(outer.remote())
    assert bireme.get(made) == "made inside" and bireme.get(refs) == [1, 2, 3]


def test_a_function_and_options_travel_as_values(runtime: Any) -> None:
    @bireme.remote
    def call(function: Any, *args: Any) -> Any:
        return bireme.get(function.remote(*args))

    assert bireme.get(call.remote(add, 4)) == 5
    assert bireme.get(call.remote(add.options(name="other"), 4)) == 5


@pytest.mark.parametrize("count", [2, 5])
def test_several_results_have_a_reference_each(runtime: Any, count: int) -> None:
    @bireme.remote(num_returns=count)
    def several(kind: str) -> Any:
        values = [n * 10 for n in range(count)]
        return {"list": values, "tuple": tuple(values), "generator": (v for v in values)}[kind]

    for kind in ("list", "tuple", "generator"):
        refs = several.remote(kind)
        assert len(refs) == count and bireme.get(refs) == [n * 10 for n in range(count)]
    assert bireme.get(several.options(num_returns=1).remote("tuple")) == tuple(n * 10 for n in range(count))


def test_no_result_is_none_and_the_task_runs_all_the_same(runtime: Any, tmp_path: Path) -> None:
    @bireme.remote(num_returns=0)
    def touch(path: str) -> None:
        Path(path).write_text("done")

    @bireme.remote
    def after(path: str) -> str:
        while not Path(path).exists() or not Path(path).read_text():
            os.sched_yield()
        return Path(path).read_text()

    assert touch.remote(str(tmp_path / "file")) is None
    assert bireme.get(after.remote(str(tmp_path / "file"))) == "done"


def test_a_wrong_number_of_results_is_an_error_of_each(runtime: Any) -> None:
    @bireme.remote(num_returns=2, name="pair")
    def give(value: Any) -> Any:
        return value

    for value, words in (([1], "2 values, not 1"), ([1, 2, 3], "more than 2"), (7, "not a int")):
        for ref in give.remote(value):
            with pytest.raises((ValueError, TypeError), match=words) as caught:
                bireme.get(ref)
            assert isinstance(caught.value, exceptions.TaskError) and "num_returns=2" in str(caught.value)


def test_options_are_chosen_per_call_and_leave_the_function_as_it_was(runtime: Any) -> None:
    @bireme.remote(num_cpus=1, name="first")
    def name_and_retries() -> str:
        context = bireme.get_runtime_context()
        return str(context.get_task_name())

    assert bireme.get(name_and_retries.remote()) == "first"
    assert bireme.get(name_and_retries.options(name="second").remote()) == "second"
    assert bireme.get(name_and_retries.remote()) == "first"


def test_errors_arrive_as_task_error_and_as_their_own_type_with_the_place(runtime: Any) -> None:
    class Special(LookupError):
        def __init__(self, code: int, *, detail: str) -> None:
            super().__init__(f"code {code}")
            self.code, self.detail = code, detail

    @bireme.remote
    def inner() -> None:
        try:
            dict[str, int]()["missing"]
        except KeyError as error:
            raise Special(7, detail="all of it") from error

    @bireme.remote
    def outer() -> Any:
        return bireme.get(inner.remote())

    for function, tasks in ((inner, ["inner"]), (outer, ["inner", "outer"])):
        with pytest.raises(LookupError) as caught:
            bireme.get(function.remote())
        error = caught.value
        assert isinstance(error, Special) and isinstance(error, exceptions.TaskError)
        assert isinstance(error, exceptions.RayTaskError)
        assert (error.code, error.detail) == (7, "all of it")
        text = str(error)
        assert all(task in text for task in tasks), text
        assert f'{SOURCE}", line' in text and 'raise Special(7, detail="all of it")' in text
        assert "KeyError: 'missing'" in text
        assert isinstance(error.cause, Special) and isinstance(error.cause.__cause__, KeyError)


def test_errors_that_cannot_be_pickled_arrive_with_their_text(runtime: Any) -> None:
    @bireme.remote
    def with_lock() -> None:
        import threading

        class Held(Exception):
            pass

        raise Held("the text", threading.Lock())

    @bireme.remote
    def with_bad_reduce() -> None:
        class Broken(Exception):
            def __reduce__(self) -> Any:
                raise RuntimeError("never")

        raise Broken("other text")

    for function, words in ((with_lock, "the text"), (with_bad_reduce, "other text")):
        with pytest.raises(exceptions.TaskError, match=words) as caught:
            bireme.get(function.remote())
        assert str(SOURCE) in str(caught.value)


def test_an_error_can_be_got_twice_and_reaches_tasks_that_depend_on_it(runtime: Any, tmp_path: Path) -> None:
    marker = tmp_path / "ran"

    @bireme.remote
    def use(value: Any) -> Any:
        marker.write_text("")
        return value

    bad = fail.remote(ValueError("first"))
    for ref in (bad, bad, use.remote(bad), use.remote(use.remote(bad))):
        with pytest.raises(ValueError, match="first"):
            bireme.get(ref)
    assert not marker.exists(), "a task ran although its argument has no value"


def test_exits_and_odd_exceptions_of_a_task_are_errors_of_the_task(runtime: Any) -> None:
    for error in (SystemExit(3), KeyboardInterrupt(), StopIteration(1), GeneratorExit(), BaseException("odd")):
        with pytest.raises(BaseException) as caught:
            bireme.get(fail.options(max_retries=0).remote(error))
        assert isinstance(caught.value, exceptions.BiremeError), repr(caught.value)
    assert bireme.get(add.remote(1)) == 2


def counting(tmp_path: Path) -> Any:
    """A function that counts its attempts in a file, and runs `act(attempt)`."""
    file = tmp_path / "attempts"

    def attempt(act: Any) -> int:
        with file.open("a") as opened:
            opened.write("x")
        number = len(file.read_text())
        act(number)
        return number

    return attempt


def test_exceptions_are_retried_when_asked_for_and_only_those(runtime: Any, tmp_path: Path) -> None:
    def run(name: str, raises: type[Exception], succeeds_at: int, **options: Any) -> int:
        folder = tmp_path / name
        folder.mkdir()

        def act(number: int) -> None:
            if number < succeeds_at:
                raise raises(f"attempt {number}")

        return int(bireme.get(bireme.remote(**options)(counting(folder)).remote(act)))

    class Mine(ConnectionError):
        pass

    assert run("all", ValueError, 3, max_retries=5, retry_exceptions=True) == 3
    assert run("listed", ConnectionError, 2, max_retries=1, retry_exceptions=[OSError]) == 2
    assert run("subclass", Mine, 2, max_retries=1, retry_exceptions=[ConnectionError]) == 2
    unwanted: dict[str, dict[str, Any]] = {
        "none": {"max_retries": 3},
        "other": {"max_retries": 3, "retry_exceptions": [KeyError]},
        "zero": {"max_retries": 0, "retry_exceptions": True},
    }
    for name, options in unwanted.items():
        with pytest.raises(ValueError, match="attempt 1"):
            run(name, ValueError, 9, **options)
    with pytest.raises(ValueError, match="attempt 3"):
        run("enough", ValueError, 9, max_retries=2, retry_exceptions=True)


def test_a_dead_worker_is_retried_and_then_an_error_with_the_facts(runtime: Any, tmp_path: Path) -> None:
    def die_until(count: int) -> Any:
        def act(number: int) -> None:
            if number < count:
                print("last words", file=__import__("sys").stderr, flush=True)
                os.kill(os.getpid(), signal.SIGKILL)

        return act

    first = tmp_path / "first"
    first.mkdir()
    assert bireme.get(bireme.remote(max_retries=2)(counting(first)).remote(die_until(3))) == 3
    second = tmp_path / "second"
    second.mkdir()
    with pytest.raises(exceptions.WorkerCrashedError) as caught:
        bireme.get(bireme.remote(max_retries=1, name="doomed")(counting(second)).remote(die_until(9)))
    assert len((second / "attempts").read_text()) == 2
    assert caught.value.signal == signal.SIGKILL
    assert "SIGKILL" in str(caught.value) or "signal 9" in str(caught.value)
    assert bireme.get(add.remote(1)) == 2


def test_an_exit_code_is_told(runtime: Any) -> None:
    @bireme.remote(max_retries=0)
    def leave() -> None:
        os._exit(17)

    with pytest.raises(exceptions.WorkerCrashedError) as caught:
        bireme.get(leave.remote())
    assert caught.value.exit_code == 17 and "17" in str(caught.value)


def test_many_small_tasks_and_deep_chains(runtime: Any) -> None:
    ref = bireme.put(0)
    for _ in range(300):
        ref = add.remote(ref)
    assert bireme.get(ref) == 300


def test_remote_refuses_what_is_no_function_or_class() -> None:
    async def coroutine() -> None: ...

    refused: list[tuple[Any, str]] = [(5, "int"), ("text", "str"), (coroutine, "async"), (add, "remote already")]
    for target, words in refused:
        with pytest.raises(TypeError, match=words):
            bireme.remote(target)
    with pytest.raises(TypeError, match="parentheses"):
        bireme.remote()
    with pytest.raises(TypeError, match="not both"):
        bireme.remote(add.function, num_cpus=1)  # type: ignore[call-overload]
