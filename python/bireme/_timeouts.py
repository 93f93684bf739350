"""The check of every timeout that a user gives."""

from __future__ import annotations


def check_timeout(verb: str, timeout: float | None) -> None:
    """Refuses what is no time to wait; None waits for ever, and so does infinity."""
    if timeout is None:
        return
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise TypeError(f"the timeout of {verb} is a number of seconds or None, not a {type(timeout).__name__}")
    if not timeout >= 0:
        raise ValueError(f"the timeout of {verb} is at least 0 seconds, not {timeout}; None waits for ever")
