"""The errors that carry facts about a process, a task, an actor or an object; the base of most classes of
`bireme.exceptions`.
"""

from __future__ import annotations

import signal as _signal
from typing import ClassVar

from bireme._task_error import BiremeError

__all__ = ["FactualError"]


class FactualError(BiremeError):
    """An error about a process, a task, an actor or an object, with what is known of it."""

    _advice: ClassVar[str] = ""

    def __init__(
        self,
        message: str = "",
        *,
        reason: str | None = None,
        task_id: str | None = None,
        function_name: str | None = None,
        actor_id: str | None = None,
        actor_name: str | None = None,
        object_id: str | None = None,
        node_id: str | None = None,
        placement_group_id: str | None = None,
        pid: int | None = None,
        exit_code: int | None = None,
        signal: int | None = None,
        memory_used_bytes: int | None = None,
        memory_limit_bytes: int | None = None,
        stderr_tail: str = "",
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.task_id = task_id
        self.function_name = function_name
        self.actor_id = actor_id
        self.actor_name = actor_name
        self.object_id = object_id
        self.node_id = node_id
        self.placement_group_id = placement_group_id
        self.pid = pid
        self.exit_code = exit_code
        self.signal = signal
        self.memory_used_bytes = memory_used_bytes
        self.memory_limit_bytes = memory_limit_bytes
        self.stderr_tail = stderr_tail

    def __str__(self) -> str:
        if self.args:
            return str(self.args[0])
        text = self._sentence
        if self.reason:
            text += f": {self.reason}"
        if facts := self._facts():
            text += f" ({', '.join(facts)})"
        if self._advice:
            text += f"; {self._advice}"
        if self.stderr_tail:
            text += f"\nlast lines on its standard error:\n{self.stderr_tail.rstrip()}"
        return text

    def _facts(self) -> list[str]:
        known = [
            ("function", self.function_name),
            ("", self.task_id),
            ("actor", self.actor_name or self.actor_id),
            ("object", self.object_id),
            ("node", self.node_id),
            ("placement group", self.placement_group_id),
            ("pid", self.pid),
            ("exit code", self.exit_code),
            ("killed by", None if self.signal is None else _signal_name(self.signal)),
            ("memory used", _mebibytes(self.memory_used_bytes)),
            ("limit", _mebibytes(self.memory_limit_bytes)),
        ]
        return [f"{name} {value}".strip() for name, value in known if value is not None]


def _signal_name(number: int) -> str:
    try:
        return _signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _mebibytes(size_bytes: int | None) -> str | None:
    return None if size_bytes is None else f"{size_bytes / 2**20:.0f} MiB"
