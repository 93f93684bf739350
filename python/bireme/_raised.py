"""An exception on its way from one process to another.

Called by the worker when user code raised (`describe_exception`, `from_exception`), by the driver when it raises the
error of a task again (`to_exception`, `task_error`), and by pickle when a `TaskError` is a value. `bireme.exceptions`
re-exports what users see.

What always holds:

- An exception never gets lost on the way: what cannot be pickled or unpickled arrives as text (type, message,
  traceback).
- `__cause__`, `__context__`, `__suppress_context__` and `__notes__` arrive, which pickle alone would drop.
- An exception with an `__init__` of other parameters than its `args` arrives as well: it is rebuilt without calling
  `__init__`.
- An error that passed through several tasks keeps the user's type, has the original exception as its `cause` and shows
  every traceback.
"""

from __future__ import annotations

import io
import pickle
from functools import lru_cache
from typing import Any, NamedTuple, cast

from bireme._task_error import (
    BiremeError,
    TaskError,
    UnserializableException,
    args_of,
    blank,
    cause_of,
    facts_of,
    is_slot,
    members_of,
    restore_members,
    set_args,
    set_chain,
    task_error,
)
from bireme._traceback import message_of, own_traceback, remote_traceback, type_name_of

__all__ = ["Raised", "describe_exception", "from_exception", "to_exception"]

# An exception graph (causes, contexts, members of groups) larger than this is cut: what is beyond arrives as text.
EXCEPTIONS_PER_PAYLOAD_MAX = 128


class Raised(NamedTuple):
    """What the engine keeps of an exception: text for every reader, and the exception itself for Python."""

    type_names: list[str]
    message: str
    traceback_text: str
    payload: bytes


def describe_exception(exception: BaseException) -> Raised:
    """All that is sent when user code raised `exception`; call it while the traceback is still attached."""
    original = (cause_of(exception) if isinstance(exception, TaskError) else None) or exception
    type_names = [type_name_of(each) for each in type(original).__mro__ if each is not object]
    return Raised(type_names, message_of(original), remote_traceback(exception), from_exception(exception))


class _Node(NamedTuple):
    """One exception of the graph. `body` is None when only the text could be kept."""

    form: str
    body: bytes | None
    type_name: str
    message: str
    traceback_text: str
    trouble: str
    cause: int | None
    context: int | None
    suppress_context: bool


def from_exception(exception: BaseException) -> bytes:
    """The exception with its chain as bytes, for `to_exception` in another process."""
    graph = _Graph()
    graph.index_of(exception)
    nodes: list[_Node] = []
    while len(nodes) < len(graph.exceptions):
        nodes.append(_node(graph.exceptions[len(nodes)], graph))
    return pickle.dumps([tuple(node) for node in nodes], protocol=5)


def to_exception(payload: bytes) -> BaseException:
    """The exception of a payload. It never raises: what cannot be rebuilt is an `UnserializableException` with the
    text.
    """
    try:
        nodes = [_Node(*fields) for fields in pickle.loads(payload)]
    except Exception as trouble:
        return UnserializableException(
            "an exception", f"{len(payload)} bytes that cannot be read", trouble=message_of(trouble)
        )
    return _Rebuilding(nodes).first()


class _Graph:
    """The exceptions reachable from one: each gets a number the first time it is met, so that cycles and shared causes
    cost nothing.
    """

    def __init__(self) -> None:
        self.exceptions: list[BaseException] = []
        self._numbers: dict[int, int] = {}

    def index_of(self, exception: BaseException) -> int:
        number = self._numbers.get(id(exception))
        if number is None:
            number = len(self.exceptions)
            if number >= EXCEPTIONS_PER_PAYLOAD_MAX:
                return -1
            self._numbers[id(exception)] = number
            self.exceptions.append(exception)
        return number

    def optional_index_of(self, exception: BaseException | None) -> int | None:
        return None if exception is None else self.index_of(exception)


def _node(exception: BaseException, graph: _Graph) -> _Node:
    form, body, trouble = _body(exception, graph)
    return _Node(
        form,
        body,
        type_name_of(type(exception)),
        message_of(exception),
        own_traceback(exception),
        trouble,
        graph.optional_index_of(exception.__cause__),
        graph.optional_index_of(exception.__context__),
        exception.__suppress_context__,
    )


def _body(exception: BaseException, graph: _Graph) -> tuple[str, bytes | None, str]:
    trouble: Exception | None = None
    if isinstance(exception, TaskError):
        return "task", _dump((facts_of(exception), cause_of(exception), getattr(exception, "__notes__", [])), graph), ""
    kind: Any = type(exception)
    if not _has_plain_reduce(kind):
        try:
            return "reduce", _dump(exception, graph, root=exception), ""
        except Exception as why:
            trouble = why
    parts = (type(exception), args_of(exception), members_of(exception), dict(exception.__dict__))
    try:
        return "parts", _dump(parts, graph), ""
    except Exception as why:
        trouble = trouble or why
    try:
        return "parts", _dump(_without_unpicklable(parts), graph), ""
    except Exception:
        return "text", None, message_of(trouble)


def _without_unpicklable(
    parts: tuple[type, tuple[Any, ...], dict[str, Any], dict[str, Any]],
) -> tuple[type, tuple[Any, ...], dict[str, Any], dict[str, Any]]:
    """Leaves behind what cannot be sent, and says so in a note: the type and the rest are worth more than the missing
    member.
    """
    kind, args, members, attributes = parts
    notes = [note for note in attributes.pop("__notes__", ()) if isinstance(note, str)]

    def keep(values: dict[str, Any]) -> dict[str, Any]:
        kept = {}
        for name, value in values.items():
            trouble = _trouble_with(value)
            if trouble is None:
                kept[name] = value
            else:
                notes.append(f"attribute {name!r} of {kind.__name__} could not be sent and is missing: {trouble}")
        return kept

    args = tuple(value if _trouble_with(value) is None else _repr(value) for value in args)
    members, attributes = keep(members), keep(attributes)
    if notes:
        attributes["__notes__"] = notes
    return kind, args, members, attributes


def _trouble_with(value: object) -> str | None:
    try:
        # Exceptions inside are nodes of their own and always travel, hence a graph of their own for the trial.
        _dump(value, _Graph())
    except Exception as trouble:
        return message_of(trouble)
    return None


def _repr(value: object) -> str:
    try:
        return repr(value)
    except Exception:
        return f"<{type_name_of(type(value))}>"


@lru_cache(maxsize=1024)
def _has_plain_reduce(kind: Any) -> bool:
    """Whether pickling was left to Python, so that we may rebuild the exception our way, without its `__init__`."""
    for name in ("__reduce_ex__", "__reduce__", "__getstate__", "__setstate__", "__getnewargs__", "__getnewargs_ex__"):
        for base in kind.__mro__:
            if name in vars(base):
                if base is not BiremeError and base.__flags__ & _HEAP_TYPE:
                    return False
                break
    return True


_HEAP_TYPE = 1 << 9


def _dump(value: object, graph: _Graph, root: BaseException | None = None) -> bytes:
    buffer = io.BytesIO()
    pickler = _pickler_class()(buffer, protocol=5)
    pickler.graph, pickler.root = graph, root
    pickler.dump(value)
    return buffer.getvalue()


@lru_cache(maxsize=1)
def _pickler_class() -> Any:
    # Imported here: a program without an error does not pay for it.
    import cloudpickle  # type: ignore[import-untyped]

    class ExceptionPickler(cloudpickle.Pickler):  # type: ignore[misc]
        graph: _Graph
        root: BaseException | None

        def persistent_id(self, obj: object) -> int | None:
            if isinstance(obj, BaseException) and obj is not self.root:
                return self.graph.index_of(obj)
            return None

    return ExceptionPickler


class _Rebuilding:
    """Rebuilds the nodes of a payload, each once, in the order in which they are asked for."""

    def __init__(self, nodes: list[_Node]) -> None:
        self._nodes = nodes
        self._done: dict[int, BaseException] = {}
        self._open: set[int] = set()

    def get(self, number: int) -> BaseException:
        if number in self._done:
            return self._done[number]
        if number in self._open or not 0 <= number < len(self._nodes):
            return UnserializableException(
                "an exception", "left out: the exceptions refer to each other in a circle, or are too many"
            )
        self._open.add(number)
        node = self._nodes[number]
        exception = self._load(node)
        self._done[number] = exception
        self._open.discard(number)
        return exception

    def first(self) -> BaseException:
        """The exception that was sent. Chains are joined when all are there, since they may form circles."""
        for number, node in enumerate(self._nodes):
            cause = None if node.cause is None else self.get(node.cause)
            context = None if node.context is None else self.get(node.context)
            set_chain(self.get(number), cause, context, node.suppress_context)
        return self.get(0)

    def _load(self, node: _Node) -> BaseException:
        trouble = node.trouble
        if node.body is not None:
            try:
                return self._load_body(node.form, node.body)
            except Exception as why:
                trouble = f"{type(why).__name__}: {message_of(why)}"
        return UnserializableException(node.type_name, node.message, node.traceback_text, trouble)

    def _load_body(self, form: str, body: bytes) -> BaseException:
        value = _Unpickler(io.BytesIO(body), self).load()
        if form == "task":
            facts, cause, notes = value
            error = task_error(cause, **facts)
            if notes:
                error.__dict__["__notes__"] = notes
            return error
        if form == "parts":
            kind, args, members, attributes = value
            exception = blank(kind, args)
            set_args(exception, args)
            exception.__dict__.update(attributes)
            # A class of `__main__` that was sent to a worker has attributes there where it has slots here.
            slots = {name: value for name, value in attributes.items() if is_slot(kind, name)}
            restore_members(exception, slots | members)
            return exception
        if not isinstance(value, BaseException):
            raise TypeError(f"its __reduce__ rebuilt a {type_name_of(type(value))} and not an exception")
        return value


class _Unpickler(pickle.Unpickler):
    def __init__(self, buffer: io.BytesIO, rebuilding: _Rebuilding) -> None:
        super().__init__(buffer)
        self._rebuilding = rebuilding

    def persistent_load(self, pid: Any) -> Any:
        return self._rebuilding.get(cast(int, pid))
