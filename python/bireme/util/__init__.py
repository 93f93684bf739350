"""Tools on top of the API, with Ray's names: pools, a queue, iteration in the order of completion, an executor,
placement groups, and help with pickling.

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
    from bireme.util.nodes import get_node_ip_address
    from bireme.util.placement_group import (
        PlacementGroup,
        get_current_placement_group,
        get_placement_group,
        placement_group,
        placement_group_table,
        remove_placement_group,
    )
    from bireme.util.queue import Queue
    from bireme.util.serialization import deregister_serializer, register_serializer

__all__ = [
    "ActorPool",
    "Executor",
    "PlacementGroup",
    "Queue",
    "as_completed",
    "deregister_serializer",
    "get_current_placement_group",
    "get_node_ip_address",
    "get_placement_group",
    "inspect_serializability",
    "list_named_actors",
    "map_unordered",
    "placement_group",
    "placement_group_table",
    "register_serializer",
    "remove_placement_group",
]

_MODULE_OF = {
    "ActorPool": "actor_pool",
    "Executor": "executor",
    "PlacementGroup": "placement_group",
    "Queue": "queue",
    "as_completed": "completion",
    "deregister_serializer": "serialization",
    "get_current_placement_group": "placement_group",
    "get_node_ip_address": "nodes",
    "get_placement_group": "placement_group",
    "inspect_serializability": "check_serialize",
    "list_named_actors": "named_actors",
    "map_unordered": "completion",
    "placement_group_table": "placement_group",
    "register_serializer": "serialization",
    "remove_placement_group": "placement_group",
}
_MODULES = {
    "actor_pool",
    "check_serialize",
    "completion",
    "executor",
    "joblib",
    "multiprocessing",
    "placement_group",
    "queue",
    "scheduling_strategies",
    "serialization",
    "state",
}


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
