"""Results that come one by one: what a task made of a generator function gives its caller."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from . import _native
from ._native import ObjectRef
from ._timeouts import check_timeout

T = TypeVar("T")


class ObjectRefGenerator(Generic[T]):
    """References to the items of a generator task, as they are made.

    Iterate over it, ``async for`` over it, or `wait` for it among references; it can be passed to another task, which goes
    on where it stands. An exception of the task is the value of its last reference. When nobody reads on, the task is
    cancelled.

    >>> import bireme
    >>> @bireme.remote
    ... def count(n):
    ...     for i in range(n):
    ...         yield i
    >>> [bireme.get(ref) for ref in count.remote(3)]
    [0, 1, 2]
    """

    def __init__(self, end: ObjectRef[int], position: int = 0) -> None:
        self._end = end
        self._position = position
        self._item: ObjectRef[T] | None = None

    def __iter__(self) -> "ObjectRefGenerator[T]":
        return self

    def __next__(self) -> ObjectRef[T]:
        return self._next(None)

    def next_ref(self, timeout: float | None = None) -> ObjectRef[T]:
        """The next reference, waiting at most so many seconds; StopIteration at the end."""
        check_timeout("next_ref", timeout)
        return self._next(timeout)

    def __aiter__(self) -> "ObjectRefGenerator[T]":
        return self

    async def __anext__(self) -> ObjectRef[T]:
        from ._futures import ready

        item = self._next_item()
        await ready(item)
        if _native.is_past_end(item):
            raise StopAsyncIteration
        return self._take(item)

    def completed(self) -> ObjectRef[int]:
        """A reference to the end: its value is the number of items, or the exception of the task."""
        return _native.as_end(self._end)

    def is_finished(self) -> bool:
        """Whether all items were taken and no more will come."""
        item = self._next_item()
        return _native.is_ready(item) and _native.is_past_end(item)

    def task_id(self) -> str:
        """The id of the task."""
        return self._end.task_id()

    def _next_item(self) -> ObjectRef[T]:
        """The reference of the next item, which need not exist yet."""
        if self._item is None:
            self._item = _native.stream_item(self._end, self._position)
        return self._item

    def _next(self, timeout: float | None) -> ObjectRef[T]:
        item = self._next_item()
        ready, _ = _native.wait([item], 1, timeout)
        if not ready:
            from .exceptions import GetTimeoutError

            raise GetTimeoutError(f"the next item did not come within {timeout} seconds: {_native.explain(self._end)}")
        if _native.is_past_end(item):
            raise StopIteration
        return self._take(item)

    def _take(self, item: ObjectRef[T]) -> ObjectRef[T]:
        _native.take_item(self._end, self._position)
        self._position += 1
        self._item = None
        return item

    def __repr__(self) -> str:
        return f"ObjectRefGenerator({self._end.task_id()}, next item {self._position})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (ObjectRefGenerator, (self._end, self._position))


# The name that Ray's users know from its older form.
DynamicObjectRefGenerator = ObjectRefGenerator
