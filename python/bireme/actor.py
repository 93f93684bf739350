"""Actors: ``@remote`` on a class, ``Class.remote(...)`` for an actor, ``actor.method.remote(...)`` for a call."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Generic, NoReturn, TypeVar, cast

from . import _native, _signature
from ._code import describe_class, pack_class
from ._options import ActorOptions, MethodOptions
from .task import wishes

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

# Where `method` leaves its options on the function.
_METHOD_OPTIONS = "__bireme_method_options__"
# Methods that every actor has, under the names that Ray's users know.
_SPECIAL = (
    "__ray_ready__",
    "__ray_terminate__",
    "__ray_call__",
    "__bireme_ready__",
    "__bireme_terminate__",
    "__bireme_call__",
)


class _MethodTraits:
    """What callers need to know about a method, wherever they are."""

    __slots__ = ("options", "streams")

    def __init__(self, options: MethodOptions, streams: bool) -> None:
        self.options = options
        self.streams = streams

    def __reduce__(self) -> tuple[Any, ...]:
        return (_MethodTraits, (self.options, self.streams))


class _Description:
    """What a handle needs to know about an actor's class and options."""

    def __init__(self, class_name: str, methods: dict[str, _MethodTraits], retries: int, pending_max: int) -> None:
        self.class_name = class_name
        self.methods = methods
        self.retries = retries
        self.pending_max = pending_max


def _method_traits(cls: type) -> dict[str, _MethodTraits]:
    traits = {name: _MethodTraits(MethodOptions(), False) for name in _SPECIAL}
    for name, function in inspect.getmembers(cls, callable):
        if name.startswith("__") and name != "__call__" and not hasattr(function, _METHOD_OPTIONS):
            if name not in vars(cls) or not inspect.isfunction(function):
                continue
        plain = inspect.unwrap(function)
        streams = inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain)
        traits[name] = _MethodTraits(getattr(function, _METHOD_OPTIONS, MethodOptions()), streams)
    return traits


def is_async(cls: type) -> bool:
    """Whether an actor of this class runs its calls on an event loop: one async method is enough."""

    def runs_on_a_loop(member: Any) -> bool:
        return inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member)

    return any(runs_on_a_loop(member) for _, member in inspect.getmembers(cls, callable))


class ActorClass(Generic[T]):
    """A class whose instances live in workers of their own.

    >>> import bireme
    >>> @bireme.remote
    ... class Counter:
    ...     def __init__(self, start=0):
    ...         self.total = start
    ...     def add(self, n):
    ...         self.total += n
    ...         return self.total
    >>> counter = Counter.remote(10)
    >>> bireme.get(counter.add.remote(5))
    15
    """

    def __init__(self, cls: type[T], options: ActorOptions) -> None:
        self._class = cls
        self._options = options
        self._function: _native.Function | None = None
        self._described: _Description | None = None
        self._concurrency = 1
        self.__name__ = cls.__name__
        self.__doc__ = cls.__doc__

    def __call__(self, /, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            f"{self.__name__} is an actor class and is not called directly: use {self.__name__}.remote(...) to start an actor"
        )

    def __mro_entries__(self, bases: tuple[Any, ...]) -> NoReturn:
        raise TypeError(
            f"{self.__name__} is an actor class and cannot be inherited from: inherit from the plain class, "
            "and make the result an actor class with remote(...)"
        )

    def remote(self, /, *args: Any, **kwargs: Any) -> "ActorHandle[T]":
        """Starts an actor and gives its handle at once. An error of the constructor shows with the first call."""
        options = self._options
        name, namespace = options.name, options.namespace
        if name is not None:
            found = _native.find_actor(name, namespace)
            if found is not None:
                if options.get_if_exists:
                    return _handle_of(found)
                raise ValueError(
                    f"the name {options.name!r} is taken by another actor; choose another one, "
                    "or pass get_if_exists=True to get that actor"
                )
        if self._function is None:
            self._function = self._prepare()
        life = (name, namespace, options.max_restarts, self._concurrency, options.lifetime == "detached")
        native = self._function.create(args, kwargs, life)
        if name is not None and options.get_if_exists:
            # Of several that saw a free name at once, one got it; the node knows which.
            found = _native.find_actor(name, namespace)
            if found is not None and found != native:
                return _handle_of(found)
        return ActorHandle(native, cast(_Description, self._described), self._class)

    def options(self, **options: Any) -> "ActorClass[T]":
        """The same class with some options chosen anew."""
        return ActorClass(self._class, self._options.merge(**options))

    def _prepare(self) -> _native.Function:
        cls, options = self._class, self._options
        self._concurrency = options.concurrency(is_async(cls))
        pending_max = options.max_pending_calls or 0
        self._described = _Description(cls.__name__, _method_traits(cls), options.max_task_retries, pending_max)
        code = pack_class(cls, self._described)
        asked = wishes(_CreateOptions(options), f"{cls.__name__}.__init__", 0, False)
        return _native.Function(code, asked, _signature.of(cls, cls.__name__))

    def __repr__(self) -> str:
        return f"ActorClass({self.__name__})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild_class, (), (self._class, self._options), None, None, _set_class)


class _CreateOptions:
    """An actor's options as those of its constructor."""

    num_returns = 1
    max_calls = 0
    retry_on: tuple[str, ...] = ()

    def __init__(self, options: ActorOptions) -> None:
        self.num_cpus = options.num_cpus
        self.num_gpus = options.num_gpus
        self.memory = options.memory
        self.resources = options.resources
        self.runtime_env = options.runtime_env
        self.scheduling_strategy = options.scheduling_strategy


def _rebuild_class() -> ActorClass[Any]:
    return ActorClass.__new__(ActorClass)


def _set_class(actor_class: ActorClass[Any], state: tuple[type, ActorOptions]) -> None:
    ActorClass.__init__(actor_class, *state)


class ActorHandle(Generic[T]):
    """A handle of an actor. Handles can be copied and sent to tasks and actors; the actor ends when the last one is gone,
    unless it is detached.
    """

    def __init__(self, native: _native.Actor, description: _Description, cls: type | None = None) -> None:
        self._native = native
        self._description = description
        self._class = cls

    def __getattr__(self, name: str) -> "ActorMethod":
        # Set by the constructor: missing only while a handle is being copied.
        if name in ("_native", "_description", "_class"):
            raise AttributeError(name)
        description = self._description
        traits = description.methods.get(name)
        if traits is None:
            raise AttributeError(_no_method(description, name))
        method = ActorMethod(self._native, description, name, traits, self._class)
        # A method holds the actor, not this handle: no circle keeps the actor alive.
        self.__dict__[name] = method
        return method

    def __dir__(self) -> list[str]:
        return sorted(self._description.methods)

    @property
    def _actor_id(self) -> "ActorID":
        return ActorID(self._native.hex())

    def __hash__(self) -> int:
        return hash(self._native)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ActorHandle) and self._native == other._native

    def __repr__(self) -> str:
        return f"Actor({self._description.class_name}, {self._native.hex()})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (ActorHandle, (self._native, self._description))


class ActorID(str):
    """The id of an actor as text."""

    def hex(self) -> str:
        """The text itself."""
        return str(self)


def _no_method(description: _Description, name: str) -> str:
    from difflib import get_close_matches

    known = [each for each in description.methods if not each.startswith("__")]
    near = get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(known) or 'no methods'}"
    return f"the actor class {description.class_name} has no method {name!r}{hint}"


class ActorMethod:
    """A method of an actor: ``actor.method.remote(...)``."""

    def __init__(
        self,
        actor: _native.Actor,
        description: _Description,
        name: str,
        traits: _MethodTraits,
        cls: type | None,
    ) -> None:
        self._parts = (actor, description, name, traits, cls)
        options = traits.options
        label = options.name or f"{description.class_name}.{name}"
        retries = description.retries if options.max_task_retries is None else options.max_task_retries
        asked = wishes(options, label, retries, traits.streams)
        signature = None if cls is None or name in _SPECIAL else _method_signature(cls, name)
        self.remote: Callable[..., Any] = _native.Method(actor, name, asked, description.pending_max, signature).remote

    def options(self, **options: Any) -> "ActorMethod":
        """The same method with some options chosen anew."""
        actor, description, name, traits, cls = self._parts
        merged = _MethodTraits(traits.options.merge(**options), traits.streams)
        return ActorMethod(actor, description, name, merged, cls)

    def __call__(self, /, *args: Any, **kwargs: Any) -> NoReturn:
        name = self._parts[2]
        raise TypeError(f"methods of actors are not called directly: use .{name}.remote(...)")

    def __reduce__(self) -> tuple[Any, ...]:
        actor, description, name, traits, _ = self._parts
        return (ActorMethod, (actor, description, name, traits, None))


def _method_signature(cls: type, name: str) -> Any:
    static = inspect.getattr_static(cls, name)
    bound = isinstance(static, (staticmethod, classmethod))
    return _signature.of(getattr(cls, name), f"{cls.__name__}.{name}", skip_first=not bound)


def method(**options: Any) -> Callable[[F], F]:
    """Options of a method of an actor class: num_returns, max_task_retries, retry_exceptions, ...

    >>> import bireme
    >>> @bireme.remote
    ... class Splitter:
    ...     @bireme.method(num_returns=2)
    ...     def split(self, pair):
    ...         return pair
    >>> bireme.get(Splitter.remote().split.remote((1, 2)))
    [1, 2]
    """
    if not options:
        raise ValueError("use @method(option=...) with at least one option, such as num_returns")
    chosen = MethodOptions.parse(options)

    def mark(function: F) -> F:
        setattr(function, _METHOD_OPTIONS, chosen)
        return function

    return mark


def kill(actor: ActorHandle[Any], *, no_restart: bool = True) -> None:
    """Ends an actor now, without waiting for its calls; ``no_restart=False`` lets it start again (max_restarts)."""
    if not isinstance(actor, ActorHandle):
        raise ValueError(f"kill takes the handle of an actor, not a {type(actor).__name__}; use cancel for a task")
    _native.kill(actor._native, not no_restart)


def get_actor(name: str, namespace: str | None = None) -> ActorHandle[Any]:
    """The actor with this name."""
    if not isinstance(name, str) or not name:
        raise ValueError(f"an actor's name is text that is not empty, not {name!r}")
    found = _native.find_actor(name, namespace)
    if found is None:
        where = f" in namespace {namespace!r}" if namespace else ""
        raise ValueError(f"there is no actor named {name!r}{where}: it was never started under this name, or is dead")
    return _handle_of(found)


def _handle_of(native: _native.Actor) -> ActorHandle[Any]:
    code = _native.lookup_code(native.class_key)
    if code is None:
        raise ValueError("this actor was not started from Python, so its methods are unknown here")
    return ActorHandle(native, describe_class(code))


def named_actors(all_namespaces: bool = False) -> list[tuple[str, str]]:
    """Namespace and name of the actors that have one: of this namespace, or of all."""
    return _native.actor_names(all_namespaces)


def handle_of_self() -> ActorHandle[Any]:
    """A handle of the actor whose code calls it."""
    native = _native.own_actor()
    if native is None:
        raise RuntimeError("there is no current actor here: only an actor's constructor and methods have one")
    return _handle_of(native)


def exit_actor() -> NoReturn:
    """Ends the actor whose method calls it, after this call. Its caller gets an ActorDiedError."""
    from ._worker import leave

    leave()
