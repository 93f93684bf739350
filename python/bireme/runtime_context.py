"""What a program can ask about where it runs: `get_runtime_context`, `nodes`, resources."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from . import _native, context
from ._current import current

if TYPE_CHECKING:
    from .actor import ActorHandle


class RuntimeContext:
    """The job, node, worker, task and actor that the calling code belongs to.

    >>> import bireme
    >>> bireme.get_runtime_context().get_task_id() is None
    True
    """

    def get_job_id(self) -> str:
        """The id of the job."""
        return _native.job_id()

    def get_node_id(self) -> str:
        """The id of the node."""
        return context.node_id()

    def get_worker_id(self) -> str:
        """The id of this process."""
        return _native.process_id()

    def get_task_id(self) -> str | None:
        """The id of the task or call that runs, None in a driver."""
        found = current()
        return None if found is None else found[0]

    def get_task_name(self) -> str | None:
        """The name of the task or call that runs, None in a driver."""
        found = current()
        return None if found is None else found[1]

    get_task_function_name = get_task_name

    def get_actor_id(self) -> str | None:
        """The id of the actor that the calling code belongs to, None elsewhere."""
        found = current()
        return None if found is None else found[2]

    def get_actor_name(self) -> str | None:
        """The name of that actor, when it has one."""
        name = _native.actor_name()
        return None if name is None else name.rpartition("\x1f")[2]

    @property
    def namespace(self) -> str:
        """The namespace of this program's actors."""
        return context.namespace()

    @property
    def current_actor(self) -> "ActorHandle[Any]":
        """A handle of the actor that the calling code belongs to."""
        from .actor import handle_of_self

        return handle_of_self()

    @property
    def was_current_actor_reconstructed(self) -> bool:
        """Whether the actor was started again after a death."""
        return _native.actor_restarts() > 0

    def get_assigned_resources(self) -> dict[str, float]:
        """What the running task or actor asked for."""
        return _native.assigned_resources()

    def get_accelerator_ids(self) -> dict[str, list[str]]:
        """The accelerators of the running task or actor."""
        return {"GPU": [str(index) for index in get_gpu_ids()]}


def get_runtime_context() -> RuntimeContext:
    """What the calling code can ask about where it runs."""
    return RuntimeContext()


def get_gpu_ids() -> list[int]:
    """The GPUs of the running task or actor."""
    return _native.gpu_ids()


def cluster_resources() -> dict[str, float]:
    """All that tasks can ask for.

    >>> import bireme
    >>> with bireme.init(num_cpus=3):
    ...     bireme.cluster_resources()["CPU"]
    3.0
    """
    return _native.resources()[0]


def available_resources() -> dict[str, float]:
    """What tasks can ask for and nobody has now."""
    return {name: amount for name, amount in _native.resources()[1].items() if amount > 0}


def nodes() -> list[dict[str, Any]]:
    """The machines of the cluster."""
    import socket

    total = cluster_resources()
    name = socket.gethostname()
    return [
        {
            "NodeID": context.node_id(),
            "Alive": True,
            "NodeManagerHostname": name,
            "NodeName": name,
            "NodeManagerAddress": "127.0.0.1",
            "Resources": total,
            "alive": True,
            "pid": os.getpid(),
        }
    ]
