"""A first-in first-out queue between tasks, actors and the driver: an actor around `asyncio.Queue`."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Iterable
from typing import Any

import bireme

__all__ = ["Empty", "Full", "Queue"]


class Empty(queue.Empty):
    """The queue had nothing, or not enough, to give."""


class Full(queue.Full):
    """The queue had no room."""


class Queue:
    """A queue that can be passed to tasks and actors. `maxsize` 0 is without bound; `actor_options` are those of the
    actor behind it.

    >>> import bireme
    >>> from bireme.util.queue import Queue
    >>> queue = Queue(maxsize=3)
    >>> queue.put("a")
    >>> queue.put_nowait_batch(["b", "c"])
    >>> queue.full(), queue.get(), queue.get_nowait_batch(2)
    (True, 'a', ['b', 'c'])
    >>> queue.shutdown()
    >>> bireme.shutdown()
    """

    def __init__(self, maxsize: int = 0, actor_options: dict[str, Any] | None = None) -> None:
        self.maxsize = maxsize
        actor_class = bireme.remote(_QueueActor)
        self.actor: Any = actor_class.options(**(actor_options or {})).remote(maxsize)

    def __len__(self) -> int:
        return self.size()

    def size(self) -> int:
        """How many items wait."""
        size: int = bireme.get(self.actor.qsize.remote())
        return size

    def qsize(self) -> int:
        """How many items wait."""
        return self.size()

    def empty(self) -> bool:
        """Whether no item waits."""
        answer: bool = bireme.get(self.actor.empty.remote())
        return answer

    def full(self) -> bool:
        """Whether there is no room."""
        answer: bool = bireme.get(self.actor.full.remote())
        return answer

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Adds an item. `Full` is raised when there is no room: at once, or with `block` after `timeout` seconds (None:
        never).
        """
        try:
            bireme.get(self._put(item, block, timeout))
        except Full as full:
            raise Full(*full.args) from None

    async def put_async(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """`put` for async code."""
        try:
            await self._put(item, block, timeout)
        except Full as full:
            raise Full(*full.args) from None

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Takes the oldest item. `Empty` is raised when there is none: at once, or with `block` after `timeout` seconds
        (None: never).
        """
        try:
            return bireme.get(self._get(block, timeout))
        except Empty as empty:
            raise Empty(*empty.args) from None

    async def get_async(self, block: bool = True, timeout: float | None = None) -> Any:
        """`get` for async code."""
        try:
            return await self._get(block, timeout)
        except Empty as empty:
            raise Empty(*empty.args) from None

    def put_nowait(self, item: Any) -> None:
        """`put` without waiting."""
        self.put(item, block=False)

    def get_nowait(self) -> Any:
        """`get` without waiting."""
        return self.get(block=False)

    def put_nowait_batch(self, items: Iterable[Any]) -> None:
        """Adds all items in their order, or none and raises `Full`."""
        if not isinstance(items, Iterable):
            raise TypeError(f"items must be iterable, which {items!r} is not")
        try:
            bireme.get(self.actor.put_nowait_batch.remote(list(items)))
        except Full as full:
            raise Full(*full.args) from None

    def get_nowait_batch(self, num_items: int) -> list[Any]:
        """Takes so many items in their order, or none and raises `Empty`."""
        if not isinstance(num_items, int):
            raise TypeError(f"num_items must be a whole number, not {num_items!r}")
        if num_items < 0:
            raise ValueError(f"num_items must not be negative, which {num_items} is")
        try:
            items: list[Any] = bireme.get(self.actor.get_nowait_batch.remote(num_items))
        except Empty as empty:
            raise Empty(*empty.args) from None
        return items

    def shutdown(self, force: bool = False, grace_period_s: float = 5) -> None:
        """Ends the actor behind the queue: after the calls that it has, or at once with `force` or after the grace
        period.
        """
        if self.actor is None:
            return
        waiting: list[Any] = []
        if not force:
            _, waiting = bireme.wait([self.actor.__ray_terminate__.remote()], timeout=grace_period_s)
        if force or waiting:
            bireme.kill(self.actor, no_restart=True)
        self.actor = None

    def _put(self, item: Any, block: bool, timeout: float | None) -> Any:
        _check_timeout(timeout)
        return self.actor.put.remote(item, timeout) if block else self.actor.put_nowait.remote(item)

    def _get(self, block: bool, timeout: float | None) -> Any:
        _check_timeout(timeout)
        return self.actor.get.remote(timeout) if block else self.actor.get_nowait.remote()


def _check_timeout(timeout: float | None) -> None:
    if timeout is not None and timeout < 0:
        raise ValueError(f"'timeout' must be a non-negative number, not {timeout!r}")


class _QueueActor:
    """The process that holds the items. Its methods run in one event loop, so none needs a lock."""

    def __init__(self, maxsize: int) -> None:
        self._maxsize = maxsize
        self._queue: asyncio.Queue[Any] = asyncio.Queue(maxsize)

    async def qsize(self) -> int:
        return self._queue.qsize()

    async def empty(self) -> bool:
        return self._queue.empty()

    async def full(self) -> bool:
        return self._queue.full()

    async def put(self, item: Any, timeout: float | None = None) -> None:
        try:
            async with asyncio.timeout(timeout):
                await self._queue.put(item)
        except TimeoutError:
            raise Full(f"the queue of {self._maxsize} was still full after {timeout} seconds") from None

    async def get(self, timeout: float | None = None) -> Any:
        # Not wait_for, which before Python 3.12 can lose the item that comes in the moment of the timeout.
        try:
            async with asyncio.timeout(timeout):
                return await self._queue.get()
        except TimeoutError:
            raise Empty(f"the queue was still empty after {timeout} seconds") from None

    async def put_nowait(self, item: Any) -> None:
        try:
            self._queue.put_nowait(item)
        except asyncio.QueueFull:
            raise Full(f"the queue of {self._maxsize} is full") from None

    async def put_nowait_batch(self, items: list[Any]) -> None:
        if self._maxsize > 0 and len(items) + self._queue.qsize() > self._maxsize:
            raise Full(f"{len(items)} items do not fit: {self._queue.qsize()} of {self._maxsize} places are taken")
        for item in items:
            self._queue.put_nowait(item)

    async def get_nowait(self) -> Any:
        try:
            return self._queue.get_nowait()
        except asyncio.QueueEmpty:
            raise Empty("the queue is empty") from None

    async def get_nowait_batch(self, num_items: int) -> list[Any]:
        if num_items > self._queue.qsize():
            raise Empty(f"the queue has {self._queue.qsize()} items and not {num_items}")
        return [self._queue.get_nowait() for _ in range(num_items)]
