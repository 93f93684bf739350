"""Errors: the tree, Ray's names, what an exception keeps on its way between processes."""

from __future__ import annotations

import copy
import json
import pickle
import socket
import subprocess
import threading
import urllib.error
from dataclasses import dataclass

import cloudpickle  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bireme import exceptions
from bireme.exceptions import (
    ActorDiedError,
    BiremeError,
    GetTimeoutError,
    TaskError,
    UnserializableException,
    WorkerCrashedError,
    describe_exception,
    from_exception,
    make_exception,
    to_exception,
)

# Every public class of Ray 2.60's `ray.exceptions`.
RAY_NAMES = """
ActorAlreadyExistsError ActorDiedError ActorHandleNotFoundError ActorPlacementGroupRemoved
ActorUnavailableError ActorUnschedulableError AsyncioActorExit AuthenticationError CrossLanguageError
GetTimeoutError LocalRayletDiedError NodeDiedError ObjectFetchTimedOutError ObjectFreedError ObjectLostError
ObjectReconstructionFailedError ObjectRefStreamEndOfStreamError ObjectStoreFullError
OufOfBandObjectRefSerializationException OutOfDiskError OutOfMemoryError OwnerDiedError
PendingCallsLimitExceeded PlasmaObjectNotAvailable RayActorError RayCgraphCapacityExceeded RayChannelError
RayChannelTimeoutError RayDirectTransportError RayError RaySystemError RayTaskError
ReferenceCountingAssertionError RpcError RuntimeEnvSetupError StreamingGeneratorReplayInconsistentError
TaskCancelledError TaskPlacementGroupRemoved TaskUnschedulableError UnserializableException UserCodeException
WorkerCrashedError
""".split()

CLASSES = sorted(
    {kind for kind in vars(exceptions).values() if isinstance(kind, type) and issubclass(kind, BiremeError)},
    key=lambda kind: kind.__name__,
)


class TwoParameters(Exception):
    """The classic that pickle cannot rebuild: `args` is not what `__init__` takes."""

    def __init__(self, code: int, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


class KeywordOnly(ValueError):
    def __init__(self, *, field: str) -> None:
        super().__init__()
        self.field = field

    def __str__(self) -> str:
        return f"bad field {self.field}"


class WithLock(LookupError):
    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.lock = threading.Lock()
        self.code = 7


class WithSlots(Exception):
    __slots__ = ("place",)
    place: int


class WithSetState(Exception):
    def __init__(self, first: int, second: int) -> None:
        super().__init__("sum")
        self.total = first + second

    def __reduce__(self) -> tuple[type, tuple[int, int]]:
        return (WithSetState, (self.total, 0))


class BreaksOnLoad(Exception):
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (int, ("no number",))


class FinalError(Exception):
    def __init_subclass__(cls) -> None:
        raise TypeError("this class is final")


class WeirdNew(Exception):
    def __new__(cls, *, token: object) -> WeirdNew:
        return super().__new__(cls, token)

    def __init__(self, *, token: object) -> None:
        self.token = token


@dataclass(frozen=True)
class FrozenError(Exception):
    code: int


class OwnAttributes(Exception):
    """Uses names that `TaskError` uses."""

    def __init__(self) -> None:
        super().__init__("own")
        self.pid = "theirs"
        self.message = "my message"
        self.traceback_text = "theirs too"

    @property
    def cause(self) -> str:
        return "a property"


class NoText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def raised(exception: BaseException, cause: BaseException | None = None) -> BaseException:
    """The exception with a traceback, as the worker catches it."""
    try:
        if cause is not None:
            raise exception from cause
        raise exception
    except BaseException as caught:
        return caught


def sent(exception: BaseException) -> BaseException:
    return to_exception(from_exception(exception))


def through_a_task(exception: BaseException, name: str = "work", pid: int = 4711) -> TaskError:
    """What the caller of a task meets whose code raised `exception`: worker, engine, driver."""
    report = describe_exception(raised(exception))
    fields = {"function_name": name, "task_id": "task-7", "traceback_text": report.traceback_text, "pid": pid}
    fields |= {"type_name": report.type_names[0], "exception": report.payload}
    error = make_exception("TaskError", report.message, fields)
    assert isinstance(error, TaskError)
    return error


@pytest.mark.parametrize("name", RAY_NAMES)
def test_every_name_of_ray_is_a_class_of_the_tree(name: str) -> None:
    assert issubclass(getattr(exceptions, name), BiremeError)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_class_pickles_and_says_something_without_a_message(kind: type[BiremeError]) -> None:
    assert kind.__doc__ and kind.__doc__.strip()
    for error in (kind(), kind("what happened")):
        for again in (
            pickle.loads(pickle.dumps(error)),
            cloudpickle.loads(cloudpickle.dumps(error)),
            copy.copy(error),
            sent(error),
        ):
            assert type(again) is kind
            assert again.args == error.args
            assert str(again) == str(error) != ""
    assert "what happened" in str(kind("what happened"))


def test_facts_survive_and_make_the_text() -> None:
    error = WorkerCrashedError(pid=7, signal=11, stderr_tail="oh no\n", function_name="work", task_id="task-3")
    again = pickle.loads(pickle.dumps(error))
    assert (again.pid, again.signal, again.exit_code, again.stderr_tail) == (7, 11, None, "oh no\n")
    assert all(part in str(again) for part in ("SIGSEGV", "pid 7", "work", "task-3", "oh no", "max_retries"))


def test_relations_that_programs_for_ray_rely_on() -> None:
    assert issubclass(GetTimeoutError, TimeoutError)
    assert issubclass(ActorDiedError, exceptions.RayActorError)
    assert issubclass(exceptions.ActorUnavailableError, exceptions.RayActorError)
    assert issubclass(exceptions.ActorAlreadyExistsError, ValueError)
    assert issubclass(exceptions.OwnerDiedError, exceptions.ObjectLostError)
    assert issubclass(exceptions.RayChannelTimeoutError, TimeoutError)


def test_a_task_error_is_also_what_the_user_raised() -> None:
    error = through_a_task(KeyError("colour"))
    assert isinstance(error, KeyError) and isinstance(error, TaskError)
    assert type(error).__name__ == "TaskError(KeyError)"
    assert error.args == ("colour",)
    assert type(error.cause) is KeyError
    assert (error.function_name, error.task_id, error.pid) == ("work", "task-7", 4711)
    assert "in raised" in error.traceback_text and "KeyError: 'colour'" in str(error) and "pid 4711" in str(error)
    assert type(through_a_task(KeyError("shape"))) is type(error), "one class per type"


@pytest.mark.parametrize(
    "exception",
    [
        TwoParameters(3, "detail"),
        KeywordOnly(field="age"),
        FileNotFoundError(2, "no such file", "a.txt"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        ImportError("no module", name="m", path="p"),
        WithSetState(1, 2),
        FrozenError(5),
        ExceptionGroup("both", [ValueError(1), TypeError(2)]),
        GetTimeoutError("slow"),
        ActorDiedError("dead", pid=3),
        AssertionError(),
    ],
    ids=lambda exception: type(exception).__name__,
)
def test_attributes_of_the_cause_are_those_of_the_error(exception: Exception) -> None:
    error = through_a_task(exception)
    assert isinstance(error, type(exception))
    for each in (error, error.cause, pickle.loads(pickle.dumps(error))):
        for name in (
            "code",
            "detail",
            "field",
            "errno",
            "filename",
            "start",
            "reason",
            "name",
            "path",
            "total",
            "message",
        ):
            if hasattr(exception, name):
                assert getattr(each, name) == getattr(exception, name)
    if not isinstance(exception, ExceptionGroup):
        assert error.args == exception.args


class Extended(OSError):
    def __init__(self, message: str, extra: int) -> None:
        super().__init__(message)
        self.extra = extra


class Request(IOError):
    """As `requests` has them: keywords that the builtin does not know."""

    def __init__(self, *args: object, **named: object) -> None:
        self.response = named.pop("response", None)
        super().__init__(*args, **named)


class Validation(ValueError):
    """As pydantic has them: no positional arguments, and none of them in `args`."""

    def __new__(cls, *args: object, **named: object) -> Validation:
        if not named:
            raise TypeError("no constructor defined")
        return super().__new__(cls)

    def __init__(self, *, title: str, errors: list[str]) -> None:
        self.title, self.found = title, errors

    def __str__(self) -> str:
        return f"{len(self.found)} errors for {self.title}"


class Described(KeyError):
    def __init__(self, key: str, table: str) -> None:
        super().__init__(key)
        self.table = table

    def __str__(self) -> str:
        return f"no {self.args[0]} in {self.table}"


@dataclass
class Fields(Exception):
    code: int
    text: str = "x"


@dataclass(frozen=True)
class Frozen(Exception):
    code: int


def noted(exception: Exception) -> Exception:
    exception.add_note("while painting")
    return exception


FAMILIAR = [
    ConnectionError("x"),
    ConnectionRefusedError(111, "refused"),
    FileNotFoundError(2, "No such file", "/a/b"),
    OSError(28, "no space", "a", None, "b"),
    OSError("only text"),
    OSError(5, None),
    TimeoutError("too late"),
    BlockingIOError(11, "again", 7),
    socket.gaierror(-2, "Name or service not known"),
    urllib.error.URLError("unreachable"),
    urllib.error.HTTPError("http://x", 404, "Not Found", {}, None),  # type: ignore[arg-type]
    Extended("m", 3),
    Request("404 client error", response={"status": 404}),
    Validation(title="Model", errors=["a", "b"]),
    Described("colour", "paints"),
    Fields(3, "t"),
    Frozen(3),
    KeyError("k"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
    UnicodeEncodeError("ascii", "\xff", 0, 1, "bad"),
    json.JSONDecodeError("bad", "doc", 2),
    subprocess.CalledProcessError(3, ["a", "b"], b"out", b"err"),
    subprocess.TimeoutExpired("cmd", 3.5),
    ImportError("no", name="n", path="p"),
    SyntaxError("bad", ("f", 1, 2, "text")),
    noted(ValueError("v")),
    ExceptionGroup("g", [ValueError(1), ExceptionGroup("h", [ConnectionError("x")])]),
]


@pytest.mark.parametrize("exception", FAMILIAR, ids=lambda each: repr(each)[:40])
def test_exceptions_with_constructors_of_their_own_say_the_same_on_the_other_side(exception: Exception) -> None:
    error = to_exception(from_exception(exceptions.task_error(exception, function_name="f")))
    assert isinstance(error, type(exception)) and isinstance(error, TaskError)
    for found in (error.cause, to_exception(from_exception(exception))):
        assert type(found) is type(exception) and str(found) == str(exception) and repr(found) == repr(exception)
        assert getattr(found, "__notes__", None) == getattr(exception, "__notes__", None)
    assert str(error).startswith(f"{exception}\n"), "the first line is what the exception says"
    names = ("errno", "strerror", "filename", "filename2", "characters_written", "code", "reason", "url", "start", "reason")
    for name in (*names, "returncode", "cmd", "stdout", "lineno", "pos", "name", "path", "title", "table", "extra", "response"):
        if hasattr(exception, name):
            assert getattr(error, name) == getattr(exception, name), name


def test_slots_of_a_class_that_has_attributes_elsewhere_arrive() -> None:
    error = WithSlots("there")
    error.place = 3
    sent = pickle.loads(from_exception(error))
    # As a worker sends it, whose copy of the class has no slots.
    kind, args, members, attributes = pickle.loads(sent[0][1])
    moved = cloudpickle.dumps((kind, args, {}, attributes | members))
    back = to_exception(pickle.dumps([(sent[0][0], moved, *sent[0][2:])]))
    assert isinstance(back, WithSlots) and back.place == error.place


def test_slots_arrive() -> None:
    exception = WithSlots("x")
    exception.place = 3
    error = through_a_task(exception)
    assert isinstance(error, WithSlots) and error.place == 3


def test_the_users_attributes_win_and_the_cause_stays_ours() -> None:
    error = through_a_task(OwnAttributes())
    assert isinstance(error, OwnAttributes)
    assert (error.pid, error.traceback_text, error.message) == ("theirs", "theirs too", "my message")
    assert type(error.cause) is OwnAttributes
    assert "in raised" in str(error) and "4711" in str(error)


@pytest.mark.parametrize("exception", [FinalError("x"), WeirdNew(token=1)], ids=["final", "weird new"])
def test_a_type_that_cannot_be_derived_from_gives_a_plain_task_error(exception: Exception) -> None:
    error = through_a_task(exception)
    assert isinstance(error, TaskError)
    assert type(error.cause) is type(exception)
    if isinstance(exception, FinalError):
        assert type(error) is TaskError and error.__cause__ is error.cause
    assert error.as_instance_of_cause() is error


@pytest.mark.parametrize(
    "exception",
    [
        KeyboardInterrupt(),
        SystemExit(3),
        GeneratorExit(),
        StopIteration(4),
        StopAsyncIteration(),
        BaseExceptionGroup("g", [KeyboardInterrupt()]),
    ],
    ids=repr,
)
def test_what_would_end_the_caller_arrives_as_a_plain_task_error(exception: BaseException) -> None:
    error = through_a_task(exception)
    assert type(error) is TaskError
    assert type(error.cause) is type(exception)
    assert type(exception).__name__ in str(error)


def test_an_exception_of_the_plain_type_exception_needs_no_class_of_its_own() -> None:
    error = through_a_task(Exception("plain"))
    assert type(error) is TaskError and error.cause is not None and error.cause.args == ("plain",)


def test_an_error_that_passes_through_two_tasks_keeps_its_type_and_shows_both_tracebacks() -> None:
    first = through_a_task(TwoParameters(1, "deep"), name="inner", pid=1)

    def outer_body() -> None:
        raise first

    try:
        outer_body()
    except TaskError as caught:
        report = describe_exception(caught)
    fields = {"function_name": "outer", "traceback_text": report.traceback_text, "pid": 2, "exception": report.payload}
    second = make_exception("TaskError", report.message, fields)
    assert isinstance(second, TwoParameters) and isinstance(second, TaskError)
    assert second.code == 1
    assert type(second.cause) is TwoParameters
    assert report.type_names[0].endswith("TwoParameters")
    text = str(second)
    assert all(part in text for part in ("inner (pid 1", "outer (pid 2", "in outer_body", "in raised"))
    assert "direct cause" not in text, "the cause of the inner error is in its text already"


def test_the_chain_of_causes_arrives_with_its_notes() -> None:
    cause = raised(ConnectionError("lost"))
    cause.add_note("while it rained")
    exception = raised(TwoParameters(1, "x"), cause)
    exception.add_note("twice")
    error = through_a_task(exception)
    assert type(error.__cause__) is ConnectionError and error.__cause__.__notes__ == ["while it rained"]
    assert error.__notes__ == ["twice"]
    assert error.cause is not None and error.cause.__cause__ is error.__cause__
    again = pickle.loads(pickle.dumps(error))
    assert type(again.__cause__) is ConnectionError and again.__notes__ == ["twice"]
    assert "while it rained" in str(error)


def test_context_without_a_cause_arrives_too() -> None:
    try:
        try:
            raise KeyError("first")
        except KeyError:
            raise ValueError("second")  # noqa: B904 - without `from` on purpose.
    except ValueError as caught:
        again = sent(caught)
    assert type(again.__context__) is KeyError and again.__cause__ is None and not again.__suppress_context__


def test_exceptions_inside_of_a_group_keep_their_chains() -> None:
    member = raised(ValueError("member"), KeyError("why"))
    assert isinstance(member, Exception)
    again = sent(ExceptionGroup("group", [member, TwoParameters(1, "x")]))
    assert isinstance(again, ExceptionGroup)
    assert type(again.exceptions[0].__cause__) is KeyError
    assert isinstance(again.exceptions[1], TwoParameters)


def test_exceptions_that_wrap_each_other_cost_no_more_than_their_number() -> None:
    exception: Exception = ValueError("bottom")
    for level in range(60):
        exception = raised(TwoParameters(level, "wrap"), exception)  # type: ignore[assignment]
        exception.args = (exception.__cause__,)
    payload = from_exception(exception)
    assert len(payload) < 200_000
    again = to_exception(payload)
    assert again.args[0] is again.__cause__


def test_circles_arrive_as_far_as_possible() -> None:
    one, two = ValueError("one"), KeyError("two")
    one.__context__, two.__context__ = two, one
    again = sent(one)
    assert again.__context__ is not None and again.__context__.__context__ is again
    itself = ValueError("itself")
    itself.args = (itself,)
    assert type(sent(itself)) is ValueError


def test_more_exceptions_than_fit_are_cut() -> None:
    exception = ValueError("bottom")
    for level in range(400):
        above = ValueError(str(level))
        above.__cause__ = exception
        exception = above
    again = sent(exception)
    length, last = 0, again
    while last.__cause__ is not None:
        length, last = length + 1, last.__cause__
    assert 64 <= length < 400 and "too many" in str(last)


def test_an_attribute_that_cannot_be_pickled_is_left_behind_and_noted() -> None:
    error = through_a_task(WithLock("locked"))
    assert isinstance(error, WithLock) and error.code == 7 and error.args == ("locked",)
    assert not hasattr(error, "lock")
    assert any("'lock'" in note and "_thread.lock" in note for note in error.__notes__)


def test_an_argument_that_cannot_be_pickled_becomes_its_text() -> None:
    error = through_a_task(ValueError("bad", threading.Lock()))
    assert isinstance(error, ValueError) and error.args[0] == "bad" and "lock" in error.args[1]


def test_what_cannot_be_unpickled_arrives_as_text() -> None:
    error = through_a_task(BreaksOnLoad("the words"))
    assert isinstance(error, UnserializableException) and isinstance(error, TaskError)
    assert error.type_name.endswith("BreaksOnLoad")
    assert "the words" in str(error) and "in raised" in str(error)


def test_a_class_that_cannot_be_pickled_arrives_as_text() -> None:
    Local = type("Local", (Exception,), {"lock": threading.Lock()})
    error = through_a_task(Local("kept"))
    assert isinstance(error, UnserializableException)
    assert "Local: kept" in str(error) and "lock" in error.trouble


def test_without_a_payload_the_text_is_enough() -> None:
    fields = {
        "function_name": "work",
        "traceback_text": "Traceback: here",
        "type_name": "lib.Odd",
        "exception": b"",
        "pid": 1,
    }
    error = make_exception("TaskError", "went wrong", fields)
    assert isinstance(error, TaskError) and "lib.Odd: went wrong" in str(error) and "Traceback: here" in str(error)
    rust = make_exception("TaskError", "the task panicked: no", {"function_name": "work"})
    assert type(rust) is TaskError and str(rust).startswith("the task panicked: no")


def test_a_local_class_defined_in_main_arrives() -> None:
    class Inner(Exception):
        def __init__(self, left: int, right: int) -> None:
            super().__init__(left * right)

    error = through_a_task(Inner(3, 4))
    assert type(error).__name__ == "TaskError(Inner)" and error.args == (12,)


def test_an_exception_without_a_text_does_no_harm() -> None:
    assert "NoText" in str(through_a_task(NoText()))


@given(st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_bytes_as_payload_give_an_exception(payload: bytes) -> None:
    assert isinstance(to_exception(payload), BaseException)


@given(st.lists(st.one_of(st.integers(), st.text(), st.binary(), st.none(), st.tuples(st.integers())), max_size=5))
@settings(max_examples=100, deadline=None)
def test_any_arguments_arrive(arguments: list[object]) -> None:
    error = through_a_task(RuntimeError(*arguments))
    assert isinstance(error, RuntimeError) and error.args == tuple(arguments)


def test_python_exceptions_are_made_by_name() -> None:
    assert type(make_exception("ValueError", "bad amount", {})) is ValueError
    assert isinstance(make_exception("NotRunningError", "no runtime", {}), exceptions.RaySystemError)


def test_a_constructor_error_becomes_the_death_of_the_actor() -> None:
    died = ActorDiedError.from_task_error(
        through_a_task(TwoParameters(1, "x"), name="Counter.__init__"), actor_name="counter"
    )
    assert died.actor_init_failed and type(died.__cause__) is TwoParameters and "in raised" in str(died)
    again = pickle.loads(pickle.dumps(died))
    assert again.actor_init_failed and again.actor_name == "counter"


def test_long_tracebacks_lose_their_middle() -> None:
    report = describe_exception(raised(ValueError("x" * 1_000_000)))
    assert len(report.traceback_text) < 70_000 and "left out" in report.traceback_text


def test_what_was_lost_with_a_node_names_the_node() -> None:
    facts = {"pid": 7, "node_id": "00000003", "reason": "went with its node: node-3", "stderr_tail": ""}
    error = exceptions.make_exception("NodeDiedError", "", facts)
    assert isinstance(error, exceptions.NodeDiedError) and error.node_id == "00000003"
    assert "node 00000003" in str(error)
    assert exceptions.OwnerDiedError(node_id="00000003", object_id="object-1").node_id == "00000003"
