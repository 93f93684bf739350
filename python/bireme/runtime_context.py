"""What a program can ask about where it runs: `get_runtime_context`, `nodes`, resources."""

from __future__ import annotations

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
        return _native.actor_name()

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

    def get_placement_group_id(self) -> str | None:
        """The id of the placement group that the running task or actor is in, None elsewhere."""
        return _native.current_group()

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
    """All that tasks can ask for, on all nodes together.

    >>> import bireme
    >>> with bireme.init(num_cpus=3):
    ...     bireme.cluster_resources()["CPU"]
    3.0
    """
    return _sum_of(_native.nodes(), "total")


def available_resources() -> dict[str, float]:
    """What tasks can ask for and nobody uses now, on all nodes together.

    Each node is asked, so this is exact when nothing runs. A worker that is kept for the next task counts as free.

    >>> import bireme
    >>> with bireme.init(num_cpus=3):
    ...     done = bireme.get([bireme.remote(abs).remote(-n) for n in range(9)])
    ...     bireme.available_resources()["CPU"]
    3.0
    """
    rows = _native.nodes()
    free = _sum_of(rows, "free")
    # Every resource that there is, also one of which nothing is left.
    return {name: free.get(name, 0.0) for name in _sum_of(rows, "total")}


def _sum_of(rows: list[dict[str, Any]], kind: str) -> dict[str, float]:
    amounts: dict[str, float] = {}
    for row in rows:
        if row["alive"]:
            for name, amount in row[kind].items():
                amounts[name] = amounts.get(name, 0.0) + amount
    return amounts


def state() -> dict[str, Any]:
    """The tables of the node of this program: tasks, objects, actors, workers, leases and jobs, as dictionaries with the
    engine's own words. `bireme.util.state` has the same in Ray's shape, with filters.

    >>> import bireme
    >>> ref = bireme.put("hello")
    >>> [row["object_id"] == ref.hex() for row in bireme.state()["objects"]]
    [True]
    >>> bireme.shutdown()
    """
    return _native.state()


def nodes() -> list[dict[str, Any]]:
    """The machines of the cluster, dead ones too as long as they are remembered: what they have and where they are.

    >>> import bireme
    >>> with bireme.init(num_cpus=3):
    ...     [(node["Alive"], node["Resources"]["CPU"]) for node in bireme.nodes()]
    [(True, 3.0)]
    """
    import socket

    own, name = _native.node_id(), socket.gethostname()
    return [_portray(row, name if row["id"] == own else "") for row in _native.nodes()]


def _portray(row: dict[str, Any], hostname: str) -> dict[str, Any]:
    host, _, port = row["address"].rpartition(":") if ":" in row["address"] else (row["address"], "", "0")
    name = row["hostname"] or hostname or host
    return {
        "NodeID": row["id"],
        "Alive": row["alive"],
        "alive": row["alive"],
        "NodeManagerAddress": host,
        "NodeManagerPort": int(port),
        "NodeManagerHostname": name,
        "NodeName": name,
        "Resources": row["total"],
        "Labels": row["labels"],
        "Role": row["role"],
        "Draining": row["draining"],
        "DeathReasonMessage": row["reason"] or "",
    }
