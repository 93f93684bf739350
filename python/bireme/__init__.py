"""Bireme turns functions and classes into a cluster.

>>> import bireme
>>> @bireme.remote
... def square(x):
...     return x * x
>>> bireme.get([square.remote(n) for n in range(4)])
[0, 1, 4, 9]
>>> bireme.shutdown()
"""

from __future__ import annotations

import importlib
from typing import Any

from . import _extension

_extension.load()

from ._native import ObjectRef, __version__  # noqa: E402 - by now the extension is chosen
from ._rust_function import RustFunction, rust_function
from .actor import ActorClass, ActorHandle, exit_actor, get_actor, kill, method
from .context import init, is_initialized, shutdown
from .generator import DynamicObjectRefGenerator, ObjectRefGenerator
from .object import broadcast, cancel, explain, get, put, wait
from .reduction import reduce, reduced_from
from .runtime_context import (
    available_resources,
    cluster_resources,
    get_gpu_ids,
    get_runtime_context,
    nodes,
    state,
)
from .task import RemoteFunction, remote

# Parts that most programs never need, imported when they are.
_LATER = ("collective", "exceptions", "util")


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module 'bireme' has no attribute {name!r}")


__all__ = [
    "ActorClass",
    "ActorHandle",
    "DynamicObjectRefGenerator",
    "ObjectRef",
    "ObjectRefGenerator",
    "RemoteFunction",
    "RustFunction",
    "__version__",
    "available_resources",
    "broadcast",
    "cancel",
    "cluster_resources",
    "exit_actor",
    "explain",
    "get",
    "get_actor",
    "get_gpu_ids",
    "get_runtime_context",
    "init",
    "is_initialized",
    "kill",
    "method",
    "nodes",
    "put",
    "reduce",
    "reduced_from",
    "remote",
    "rust_function",
    "shutdown",
    "state",
    "wait",
]
