"""Remote functions: ``@remote`` on a function, ``f.remote(...)`` for a task, ``f.options(...)`` for choices of one call."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, TypeVar, overload

from . import _native, _signature
from ._code import FunctionCode
from ._native import ObjectRef
from ._options import ActorOptions, TaskOptions

if TYPE_CHECKING:
    from .actor import ActorClass
    from .generator import ObjectRefGenerator

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


class RemoteFunction(Generic[R_co]):
    """A function that runs as a task.

    >>> import bireme
    >>> @bireme.remote
    ... def add(a, b):
    ...     return a + b
    >>> bireme.get(add.remote(1, b=2))
    3
    >>> bireme.get(add.options(name="sum").remote(1, 2))
    3
    """

    def __init__(self, code: FunctionCode, name: str, options: TaskOptions, *, streams: bool) -> None:
        self._code = code
        self._name = self.__name__ = name
        self._options = options
        self._streams = streams

    def __call__(self, /, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            f"{self._name} is a remote function and is not called directly: "
            f"use {self._name}.remote(...) for a task, or {self._name}.function(...) to run it here"
        )

    @property
    def function(self) -> Callable[..., R_co]:
        """The function itself, to be called in this process."""
        function: Callable[..., R_co] = self._code.function
        return function

    def remote(self, /, *args: Any, **kwargs: Any) -> ObjectRef[R_co]:
        """Submits a task and gives a reference to its result at once.

        With ``num_returns=n`` a list of references; for a generator function an `ObjectRefGenerator`.
        """
        native = self._prepare()
        # From now on the extension is called without this detour.
        self.__dict__["remote"] = native.remote
        result: ObjectRef[R_co] = native.remote(*args, **kwargs)
        return result

    def options(self, **options: Any) -> "RemoteFunction[R_co]":
        """The same function with some options chosen anew."""
        return RemoteFunction(self._code, self._name, self._options.merge(**options), streams=self._streams)

    def _prepare(self) -> _native.Function:
        options = self._options
        signature = _signature.of(self._code.function, self._name)
        return _native.Function(self._code.pickled(), wishes(options, options.name or self._name, options.max_retries, self._streams), signature)

    def __repr__(self) -> str:
        return f"RemoteFunction({self._name})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (self._name, self._options, self._streams), self._code, None, None, _set_code)


def wishes(options: Any, name: str, retries: int, streams: bool) -> dict[str, Any]:
    """What the extension wants to know about a task or call."""
    environment = getattr(options, "runtime_env", None)
    place = getattr(options, "scheduling_strategy", None)
    returns = options.num_returns
    if returns is None:
        returns = "streaming" if streams else 1
    stream = None
    if returns == "streaming":
        stream = (options.max_buffered_items or 0, options.max_buffered_bytes or 0)
        returns = 1
    return {
        "name": name,
        "num_cpus": getattr(options, "num_cpus", 0),
        "num_gpus": getattr(options, "num_gpus", 0),
        "memory": getattr(options, "memory", 0),
        "resources": dict(getattr(options, "resources", {})),
        "retries": retries,
        "retry_on": list(options.retry_on),
        "calls_max": getattr(options, "max_calls", 0),
        "threads_per_worker": getattr(options, "threads_per_worker", 1),
        "environment": environment,
        "strategy": (place,) if isinstance(place, str) else place and place.as_place(),
        "returns": returns,
        "stream": stream,
    }


def _rebuild(name: str, options: TaskOptions, streams: bool) -> RemoteFunction[Any]:
    remote_function: RemoteFunction[Any] = RemoteFunction.__new__(RemoteFunction)
    remote_function._name = remote_function.__name__ = name
    remote_function._options, remote_function._streams = options, streams
    return remote_function


def _set_code(remote_function: RemoteFunction[Any], code: FunctionCode) -> None:
    remote_function._code = code


if TYPE_CHECKING:

    class GeneratorFunction(RemoteFunction[Iterator[T]]):
        """What type checkers take a generator function for. Not an overload by the type of `self`, since one that
        returns `Any` would then be taken for a generator.
        """

        def remote(self, /, *args: Any, **kwargs: Any) -> "ObjectRefGenerator[T]":  # type: ignore[override]
            ...

        def options(self, **options: Any) -> "GeneratorFunction[T]": ...


class _Decorator(Protocol):
    """What ``@remote(option=...)`` gives."""

    @overload
    def __call__(self, target: type[T], /) -> "ActorClass[T]": ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, target: Callable[..., Iterator[T]], /) -> "GeneratorFunction[T]": ...
    @overload
    def __call__(self, target: Callable[..., R], /) -> RemoteFunction[R]: ...


# A class is something that can be called too; the first that fits is taken.
@overload
def remote(target: type[T], /) -> "ActorClass[T]": ...  # type: ignore[overload-overlap]
@overload
def remote(target: Callable[..., Iterator[T]], /) -> "GeneratorFunction[T]": ...
@overload
def remote(target: Callable[..., R], /) -> RemoteFunction[R]: ...
@overload
def remote(**options: Any) -> _Decorator: ...
def remote(*args: Any, **options: Any) -> Any:
    """Makes a function callable as a task, or a class startable as an actor; with or without options.

    >>> import bireme
    >>> @bireme.remote(num_cpus=2, max_retries=0)
    ... def heavy():
    ...     return "done"
    >>> bireme.get(heavy.remote())
    'done'
    """
    if args and options:
        raise TypeError("use @remote, or @remote(option=...), but not both in one call")
    if args:
        if len(args) != 1:
            raise TypeError(f"remote takes one function or class, not {len(args)}")
        return _make(args[0], {})
    if not options:
        raise TypeError("use @remote without parentheses, or @remote(option=...) with at least one option")
    return functools.partial(_make, options=options)


def _make(target: Any, options: dict[str, Any]) -> Any:
    if isinstance(target, RemoteFunction) or type(target).__name__ == "ActorClass":
        raise TypeError(f"{target!r} is remote already")
    if inspect.isclass(target):
        from .actor import ActorClass

        return ActorClass(target, ActorOptions.parse(options))
    if not callable(target):
        raise TypeError(f"remote takes a function or a class, not a {type(target).__name__}")
    if inspect.iscoroutinefunction(target) or inspect.isasyncgenfunction(target):
        raise TypeError(
            f"{target.__name__} is an async function, which cannot be a task: make it a method of an actor, "
            "or call asyncio.run inside a plain function"
        )
    name = getattr(target, "__name__", type(target).__name__)
    made = RemoteFunction[Any](FunctionCode(target), name, TaskOptions.parse(options), streams=inspect.isgeneratorfunction(target))
    functools.update_wrapper(made, target, updated=())
    del made.__wrapped__  # type: ignore[attr-defined]
    return made
