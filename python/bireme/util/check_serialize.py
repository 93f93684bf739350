"""Help for someone whose function or value cannot be sent."""

from __future__ import annotations

from typing import Any, TextIO

from bireme.util._inspect import find_unserializable

__all__ = ["FailureTuple", "inspect_serializability"]


class FailureTuple:
    """The member that cannot be pickled: `obj`, the `name` and `path` under which it was found, and its `parent`."""

    def __init__(self, obj: Any, name: str, parent: Any, path: tuple[str, ...] = ()) -> None:
        self.obj = obj
        self.name = name
        self.parent = parent
        self.path = path

    def __repr__(self) -> str:
        return f"FailTuple({self.name} [path={' -> '.join(self.path)}, obj={self.obj!r}, parent={self.parent!r}])"


def inspect_serializability(
    base_obj: Any, name: str | None = None, depth: int = 3, print_file: TextIO | None = None
) -> tuple[bool, set[FailureTuple]]:
    """Prints whether a value can be sent and, when it cannot, which member is to blame; returns both.

    `depth` is how many members deep to look, and `print_file` where to print instead of standard output.

    >>> import threading
    >>> lock = threading.Lock()
    >>> ok, failures = inspect_serializability({"lock": lock}, name="settings")
    settings cannot be sent to another process.
      settings['lock'] is to blame: TypeError: cannot pickle '_thread.lock' object
      Make it inside of the task or actor, leave it out in __getstate__, or use bireme.util.register_serializer.
    >>> ok, [failure.name for failure in failures]
    (False, ["['lock']"])
    """
    label = name or getattr(base_obj, "__qualname__", None) or f"the {type(base_obj).__name__}"
    found = find_unserializable(base_obj, label, max(depth, 0))
    if found is None:
        print(f"{label} can be sent to another process.", file=print_file)
        return True, set()
    print(f"{label} cannot be sent to another process.", file=print_file)
    print(f"  {found.place} is to blame: {found.trouble}", file=print_file)
    print(
        "  Make it inside of the task or actor, leave it out in __getstate__, or use bireme.util.register_serializer.",
        file=print_file,
    )
    return False, {FailureTuple(found.member, found.names[-1], found.parent, found.names)}
