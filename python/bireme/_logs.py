"""Output of workers: named where it is written, and printed where the driver is."""

from __future__ import annotations

import io
import sys
import threading
from typing import TextIO

from . import _native
from ._current import label

# Between two of these the keeper finds the name of what is printed next.
_MARK = "\x1e"


class NamedOutput(io.TextIOWrapper):
    """Standard output or error of a worker: tells the keeper who prints."""

    _name = ""

    def write(self, text: str) -> int:
        name = label()
        if name and name != self._name:
            self._name = name
            super().write(f"{_MARK}{name}{_MARK}\n")
        if not text.endswith("\n"):
            _native.note_unflushed()
        return super().write(text)


def name_output() -> None:
    """Makes the output of this worker named, line by line."""
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        # Opened anew: the zygote's own stream was another file under the same number.
        buffer = open(descriptor, "wb", closefd=False)
        named = NamedOutput(buffer, encoding="utf-8", errors="backslashreplace", line_buffering=True)
        setattr(sys, name, named)
        setattr(sys, f"__{name}__", named)


def flush() -> None:
    """Passes on lines that are not finished."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()


class Printer:
    """Prints the workers' output in the driver, on a thread of Python: notebooks catch it where they catch prints."""

    def __init__(self) -> None:
        self._thread = threading.Thread(target=self._serve, name="bireme-output", daemon=True)
        self._output = _native.Output()
        self._thread.start()

    def _serve(self) -> None:
        while True:
            lines = self._output.next()
            if lines is None:
                return
            for pid, node, name, is_error, text in lines:
                stream = sys.stderr if is_error else sys.stdout
                place = f", {node}" if node else ""
                _print(stream, f"({name or 'worker'} pid={pid}{place}) {text}\n")

    def finish(self) -> None:
        """Waits until everything is printed; to be called after the runtime has ended."""
        self._thread.join()


def _print(stream: TextIO | None, text: str) -> None:
    try:
        if stream is not None:
            stream.write(text)
            stream.flush()
    except (OSError, ValueError):
        # The driver's own output is closed: nobody reads any more.
        pass
