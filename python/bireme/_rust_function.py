"""Remote functions of Rust, called from Python."""

from __future__ import annotations

from typing import Any

from . import _native
from ._native import ObjectRef
from ._options import TaskOptions
from .task import wishes

__all__ = ["RustFunction", "rust_function"]


class RustFunction:
    """A function with ``#[bireme::remote]`` of the extension that ``BIREME_NATIVE`` names."""

    def __init__(self, path: str, options: TaskOptions) -> None:
        name = options.name or path.rpartition("::")[2]
        self._path = path
        self._options = options
        self._native = _native.RustFunction(path, wishes(options, name, options.max_retries, streams=False))

    def remote(self, *args: Any) -> Any:
        """Submits a task and gives a reference to its result at once; with ``num_returns=n`` a list of references.

        Arguments are arrays and bytes, or references to them. Rust reads them where they lie.
        """
        result: ObjectRef[Any] = self._native.remote(*args)
        return result

    def options(self, **options: Any) -> "RustFunction":
        """The same function with some options chosen anew."""
        return RustFunction(self._path, self._options.merge(**options))

    @property
    def signature(self) -> str:
        """The types of arguments and results, in Rust's words."""
        return self._native.signature

    def __repr__(self) -> str:
        return f"RustFunction({self._path})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (RustFunction, (self._path, self._options))


def rust_function(path: str, **options: Any) -> RustFunction:
    """The remote Rust function with this path, such as ``"my_crate::scale"``.

    The program's extension is a library that carries both the runtime and the user's functions; the environment variable
    ``BIREME_NATIVE`` names its file before `bireme` is imported. Options are those of `remote`.
    """
    if not isinstance(path, str):
        raise TypeError(f"rust_function takes the path of a Rust function, not a {type(path).__name__}")
    return RustFunction(path, TaskOptions.parse(options))
