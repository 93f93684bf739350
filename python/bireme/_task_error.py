"""`BiremeError`, and `TaskError`: the exception of a task as its caller meets it.

`task_error` gives an instance of a class that derives from both `TaskError` and the type that the user's code raised,
so that `except ValueError` and `except TaskError` both catch it. The class is made once per type. It is rebuilt from
parts and never calls the user's `__new__` or `__init__`, whose parameters nobody knows.
"""

from __future__ import annotations

import types
from functools import lru_cache
from typing import Any, ClassVar

from bireme._traceback import message_of, type_name_of

__all__ = ["BiremeError", "TaskError", "UnserializableException", "task_error"]

# Classes made for the user's exception types that are kept; the least recently used one goes and is made again when
# needed.
TASK_ERROR_CLASSES_MAX = 512

_HEAP_TYPE = 1 << 9

# A task's error must not end the generator, the event loop or the program that merely asked for the result.
_NEVER_IMPERSONATED: tuple[type[BaseException], ...] = (StopIteration, StopAsyncIteration)


class BiremeError(Exception):
    """Root of every error that the engine reports; catch it to catch them all.

    >>> error = BiremeError("the node is gone")
    >>> str(error)
    'the node is gone'
    """

    __module__ = "bireme.exceptions"

    # What is known in general, for when the engine said nothing.
    _sentence: ClassVar[str] = "the engine reported an error"

    def __init__(self, message: str = "") -> None:
        Exception.__init__(self, *([message] if message else []))

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else self._sentence

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.args, dict(self.__dict__)))


def _rebuild(kind: type[BiremeError], args: tuple[Any, ...], attributes: dict[str, Any]) -> BiremeError:
    error = blank(kind, args)
    set_args(error, args)
    error.__dict__.update(attributes)
    assert isinstance(error, BiremeError)
    return error


class UnserializableException(BiremeError):
    """An exception that could not be pickled or unpickled; its type name, message and traceback are kept as text."""

    __module__ = "bireme.exceptions"

    def __init__(
        self, type_name: str = "an exception", message: str = "", traceback_text: str = "", trouble: str = ""
    ) -> None:
        self.summary = f"{type_name}: {message}" if message else type_name
        super().__init__(self.summary)
        self.type_name = type_name
        self.original_message = message
        self.traceback_text = traceback_text
        self.trouble = trouble

    def __str__(self) -> str:
        text = self.summary
        if self.trouble:
            text += f"\n(the exception itself could not be sent: {self.trouble})"
        return f"{text}\n{self.traceback_text}" if self.traceback_text else text


class TaskError(BiremeError):
    """The user's code in a task or actor raised; `cause` is what it raised and `traceback_text` says where."""

    __module__ = "bireme.exceptions"

    _sentence = "a task failed"

    function_name: str
    task_id: str | None
    traceback_text: str
    cause: BaseException | None
    pid: int | None
    actor_id: str | None
    actor_name: str | None

    def __init__(
        self,
        message: str = "",
        *,
        function_name: str = "",
        task_id: str | None = None,
        traceback_text: str = "",
        cause: BaseException | None = None,
        pid: int | None = None,
        actor_id: str | None = None,
        actor_name: str | None = None,
    ) -> None:
        super().__init__(message)
        facts = {
            "message": message,
            "function_name": function_name,
            "task_id": task_id,
            "traceback_text": traceback_text,
            "pid": pid,
            "actor_id": actor_id,
            "actor_name": actor_name,
        }
        self._remember(facts, cause)
        self.__cause__ = cause

    def _remember(self, facts: dict[str, Any], cause: BaseException | None) -> None:
        # Straight into the dictionary: the user's class may forbid to set attributes. The facts are kept apart as well,
        # since attributes of the user's exception with the same name win.
        attributes = self.__dict__
        attributes.update(facts)
        del attributes["message"]
        attributes["cause"] = cause
        attributes["_task_facts"] = facts

    @property
    def traceback_str(self) -> str:
        """Ray's name for `traceback_text`."""
        return str(self.__dict__["_task_facts"]["traceback_text"])

    def as_instance_of_cause(self) -> TaskError:
        """This error as an instance of the type of its cause too; itself when that type cannot be derived from."""
        cause = cause_of(self)
        if cause is None or isinstance(self, type(cause)):
            return self
        error = task_error(cause, **facts_of(self))
        return self if type(error) is TaskError else error

    as_instanceof_cause = as_instance_of_cause

    def __str__(self) -> str:
        facts, cause = facts_of(self), cause_of(self)
        text = facts["message"] or _summary(cause) or self._sentence
        if type(self) is TaskError and cause is not None and not facts["message"]:
            # Otherwise the name of the class says what was raised.
            text = f"{type_name_of(type(cause))}: {text}"
        if where := _where(facts):
            text += f"\n\nin {where}:"
        if facts["traceback_text"]:
            text += f"\n{facts['traceback_text']}"
        return text

    def __reduce__(self) -> tuple[Any, ...]:
        from bireme._raised import from_exception, to_exception

        return (to_exception, (from_exception(self),))

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        # The user's class may have its own, which must not win.
        return self.__reduce__()


def facts_of(error: TaskError) -> dict[str, Any]:
    """The keyword arguments of `task_error` that make this error again."""
    return dict(error.__dict__["_task_facts"])


def cause_of(error: TaskError) -> BaseException | None:
    """The `cause`, also where the user's class has a property of that name."""
    cause: BaseException | None = error.__dict__["cause"]
    return cause


def _summary(cause: BaseException | None) -> str:
    if cause is None:
        return ""
    if isinstance(cause, UnserializableException):
        return cause.summary
    return message_of(cause) or type_name_of(type(cause))


def _where(facts: dict[str, Any]) -> str:
    if not facts["function_name"]:
        return ""
    known = [
        f"pid {facts['pid']}" if facts["pid"] is not None else "",
        facts["task_id"] or "",
        facts["actor_name"] or facts["actor_id"] or "",
    ]
    details = ", ".join(each for each in known if each)
    return f"{facts['function_name']} ({details})" if details else str(facts["function_name"])


def task_error(
    cause: BaseException | None,
    *,
    message: str = "",
    function_name: str = "",
    task_id: str | None = None,
    traceback_text: str = "",
    pid: int | None = None,
    actor_id: str | None = None,
    actor_name: str | None = None,
) -> TaskError:
    """The error to raise for a task that raised `cause`: an instance of `TaskError` and, when possible, of the cause's
    type.

    >>> error = task_error(KeyError("colour"), function_name="paint", pid=7)
    >>> isinstance(error, KeyError), isinstance(error, TaskError), error.args
    (True, True, ('colour',))
    >>> type(error).__name__
    'TaskError(KeyError)'
    """
    if isinstance(cause, TaskError) and cause_of(cause) is not None:
        # It came through several tasks. The text has every traceback; the cause stays what was raised first.
        cause = cause_of(cause)
    plain = TaskError(
        message,
        function_name=function_name,
        task_id=task_id,
        traceback_text=traceback_text,
        cause=cause,
        pid=pid,
        actor_id=actor_id,
        actor_name=actor_name,
    )
    if not isinstance(cause, Exception) or isinstance(cause, _NEVER_IMPERSONATED) or issubclass(TaskError, type(cause)):
        return plain
    try:
        return _impersonating(plain, cause)
    except Exception:
        # A final type, a metaclass that objects, a memory layout that does not go together: `except TaskError` still
        # catches it.
        return plain


def _impersonating(plain: TaskError, cause: Exception) -> TaskError:
    args = args_of(cause)
    kind: Any = type(cause)
    error = blank(_task_error_class(kind), args)
    assert isinstance(error, TaskError)
    set_args(error, args)
    restore_members(error, members_of(cause))
    error._remember(facts_of(plain), cause)
    error.__dict__.update(cause.__dict__)
    error.__dict__["cause"] = cause
    if "__notes__" in cause.__dict__:
        error.__dict__["__notes__"] = list(cause.__dict__["__notes__"])
    # It stands for the user's exception, so `raise ... from ...` in the task is seen by the caller too.
    set_chain(error, cause.__cause__, cause.__context__, cause.__suppress_context__)
    return error


@lru_cache(maxsize=TASK_ERROR_CLASSES_MAX)
def _task_error_class(cause_type: Any) -> type[TaskError]:
    name = f"TaskError({cause_type.__name__})"

    def fill(namespace: dict[str, Any]) -> None:
        namespace["__module__"] = "bireme.exceptions"
        namespace["__qualname__"] = name
        namespace["__doc__"] = f"A task raised {type_name_of(cause_type)}."
        if hasattr(cause_type, "cause"):
            namespace["cause"] = property(cause_of)

    return types.new_class(name, (TaskError, cause_type), exec_body=fill)


def blank(kind: type, args: tuple[Any, ...]) -> BaseException:
    """An exception of this type on which no code of the user has run."""
    for base in kind.__mro__:
        if issubclass(base, BaseException) and not base.__flags__ & _HEAP_TYPE:
            try:
                made: BaseException = base.__new__(kind, *args)
            except TypeError:
                continue  # Another of the builtin bases decides the layout.
            return made
    raise TypeError(f"{type_name_of(kind)} cannot be made without its own __new__")


_ARGS: Any = vars(BaseException)["args"]


def args_of(exception: BaseException) -> tuple[Any, ...]:
    """The `args`, also where the user's class has a property of that name."""
    args: tuple[Any, ...] = _ARGS.__get__(exception)
    return args


def set_args(exception: BaseException, args: tuple[Any, ...]) -> None:
    """The other half of `args_of`."""
    _ARGS.__set__(exception, args)


def set_chain(
    exception: BaseException, cause: BaseException | None, context: BaseException | None, suppress_context: bool
) -> None:
    """Joins an exception to those before it, also where the user's class forbids to set attributes."""
    BaseException.__setattr__(exception, "__cause__", cause)
    BaseException.__setattr__(exception, "__context__", context)
    BaseException.__setattr__(exception, "__suppress_context__", suppress_context)


def members_of(exception: BaseException) -> dict[str, Any]:
    """What an exception keeps outside of its dictionary: `errno` of an `OSError`, `value` of a `StopIteration`, the
    user's slots.
    """
    members: dict[str, Any] = {}
    for kind in type(exception).__mro__:
        if kind in (BaseException, object):
            continue
        for name, descriptor in vars(kind).items():
            if not isinstance(descriptor, (types.MemberDescriptorType, types.GetSetDescriptorType)) or name.startswith(
                "__"
            ):
                continue
            if kind is AttributeError and name == "obj":
                continue  # The object that lacks the attribute can be anything, and is no part of the message.
            try:
                value = descriptor.__get__(exception)
            except AttributeError:
                continue  # A slot without a value.
            if value is None and not kind.__flags__ & _HEAP_TYPE:
                # Not set, as a rule. To set it would be seen: the text of an `OSError` shows what was ever set, also None.
                continue
            members.setdefault(name, value)
    return members


def is_slot(kind: type, name: str) -> bool:
    """Whether instances keep this attribute outside of their dictionaries."""
    return isinstance(getattr(kind, name, None), types.MemberDescriptorType)


def restore_members(exception: BaseException, members: dict[str, Any]) -> None:
    """The other half of `members_of`; read-only members were set when the exception was made."""
    for name, value in members.items():
        try:
            BaseException.__setattr__(exception, name, value)
        except (AttributeError, TypeError):
            pass
