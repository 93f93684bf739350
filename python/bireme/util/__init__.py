"""Tools on top of the API, with Ray's names: pools, a queue, iteration in the order of completion, an executor, and
help with pickling.

Each is imported when it is first asked for, so that `import bireme` stays fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bireme.util.actor_pool import ActorPool
    from bireme.util.check_serialize import inspect_serializability
    from bireme.util.completion import as_completed, map_unordered
    from bireme.util.executor import Executor
    from bireme.util.named_actors import list_named_actors
    from bireme.util.queue import Queue
    from bireme.util.serialization import deregister_serializer, register_serializer

__all__ = [
    "ActorPool",
    "Executor",
    "Queue",
    "as_completed",
    "deregister_serializer",
    "inspect_serializability",
    "list_named_actors",
    "map_unordered",
    "register_serializer",
]

_MODULE_OF = {
    "ActorPool": "actor_pool",
    "Executor": "executor",
    "Queue": "queue",
    "as_completed": "completion",
    "deregister_serializer": "serialization",
    "inspect_serializability": "check_serialize",
    "list_named_actors": "named_actors",
    "map_unordered": "completion",
    "register_serializer": "serialization",
}
_MODULES = {"actor_pool", "check_serialize", "completion", "executor", "queue", "serialization"}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
