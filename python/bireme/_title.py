"""What `ps` and `top` show of a worker: `bireme::name`, the name of its task or of its actor's class."""

from __future__ import annotations

import os

# The kernel's limit for the name of a thread, which `top` and `ps -e` show.
COMM_BYTES_MAX = 15


class _Title:
    """The places where the system reads the name of this process. They stay open, since tasks may alternate."""

    def __init__(self) -> None:
        # Of the main thread: it is the one that stands for the process.
        self._name = os.open(f"/proc/self/task/{os.getpid()}/comm", os.O_WRONLY)
        self._memory = os.open("/proc/self/mem", os.O_RDWR)
        with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
            # Behind the name, which may have anything in it; the first field there is the third of all.
            fields = file.read().rpartition(")")[2].split()
        # Where the arguments of this process lie in its memory.
        self._start = int(fields[48 - 3])
        self._room = int(fields[49 - 3]) - self._start

    def show(self, title: bytes) -> None:
        os.write(self._name, title[:COMM_BYTES_MAX])
        if self._start > 0 and self._room > 0:
            # The last byte stays zero: by it the kernel sees that the arguments end where they did.
            os.pwrite(self._memory, title[: self._room - 1].ljust(self._room, b"\0"), self._start)


_title: _Title | None = None
_is_refused = False


def show(name: str) -> None:
    """Makes this process appear under a name. Where the system does not let it, it keeps the one that it has."""
    global _title, _is_refused
    if _is_refused:
        return
    try:
        if _title is None:
            _title = _Title()
        _title.show(f"bireme::{name}".encode(errors="replace"))
    except OSError:
        _is_refused = True
