"""Tasks, actors, objects, workers, nodes, placement groups and jobs as lists, in the shape of `ray.util.state`.

Nodes and placement groups are those of the cluster. The rest is what the node of the calling program knows: what its programs
own and what runs there. A row is a dictionary whose keys can be read as attributes too.

>>> import bireme
>>> from bireme.util.state import list_actors, summarize_tasks
>>> @bireme.remote
... class Counter:
...     pass
>>> counter = Counter.remote()
>>> bireme.get(counter.__ray_ready__.remote())
True
>>> [actor.class_name for actor in list_actors(filters=[("state", "=", "ALIVE")])]
['Counter']
>>> bireme.shutdown()
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import bireme
from bireme import _native

__all__ = [
    "State",
    "get_actor",
    "get_job",
    "get_node",
    "get_objects",
    "get_placement_group",
    "get_task",
    "get_worker",
    "list_actors",
    "list_jobs",
    "list_nodes",
    "list_objects",
    "list_placement_groups",
    "list_tasks",
    "list_workers",
    "summarize_actors",
    "summarize_objects",
    "summarize_tasks",
]

# As in Ray: rows that a list has unless more are asked for.
LIMIT_DEFAULT = 100

Filter = tuple[str, str, Any]

# The engine's words, and Ray's for the same.
_TASK_STATES = {
    "submitted": "PENDING_NODE_ASSIGNMENT",
    "running": "RUNNING",
    "lost": "LOST",
    "finished": "FINISHED",
    "failed": "FAILED",
}
_ACTOR_STATES = {
    "queued": "PENDING_CREATION",
    "starting": "PENDING_CREATION",
    "alive": "ALIVE",
    "retiring": "ALIVE",
    "ending": "ALIVE",
    "dead": "DEAD",
}


class State(dict[str, Any]):
    """A row: `row["state"]` and `row.state` are the same."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"there is no {name!r} in this row; it has {', '.join(self)}") from None

    def asdict(self) -> dict[str, Any]:
        """A plain dictionary of it."""
        return dict(self)


def list_tasks(
    address: str | None = None, filters: Iterable[Filter] | None = None, limit: int = LIMIT_DEFAULT, **unused: Any
) -> list[State]:
    """The tasks and calls that somebody can still ask for, and the last finished ones.

    `filters` are `(key, "=" or "!=", value)`, all of which must hold. `address` is where to attach to when no runtime runs yet.

    >>> import bireme
    >>> from bireme.util.state import list_tasks
    >>> ref = bireme.remote(abs).remote(-1)
    >>> bireme.get(ref)
    1
    >>> [task.name for task in list_tasks(filters=[("state", "=", "FINISHED")])]
    ['abs']
    >>> bireme.shutdown()
    """
    rows = [_task(row) for row in _state(address, unused)["tasks"]]
    return _chosen(rows, _TASK_KEYS, filters, limit)


def list_actors(
    address: str | None = None, filters: Iterable[Filter] | None = None, limit: int = LIMIT_DEFAULT, **unused: Any
) -> list[State]:
    """The actors, the last dead ones among them."""
    rows = [_actor(row) for row in _state(address, unused)["actors"]]
    return _chosen(rows, _ACTOR_KEYS, filters, limit)


def list_objects(
    address: str | None = None, filters: Iterable[Filter] | None = None, limit: int = LIMIT_DEFAULT, **unused: Any
) -> list[State]:
    """The objects that have a value or will have one."""
    rows = [_object(row) for row in _state(address, unused)["objects"]]
    return _chosen(rows, _OBJECT_KEYS, filters, limit)


def list_workers(
    address: str | None = None, filters: Iterable[Filter] | None = None, limit: int = LIMIT_DEFAULT, **unused: Any
) -> list[State]:
    """The worker processes of the node."""
    rows = [_worker(row) for row in _state(address, unused)["workers"]]
    return _chosen(rows, _WORKER_KEYS, filters, limit)


def list_jobs(
    address: str | None = None, filters: Iterable[Filter] | None = None, limit: int = LIMIT_DEFAULT, **unused: Any
) -> list[State]:
    """The programs that use the node."""
    rows = [_job(row) for row in _state(address, unused)["jobs"]]
    return _chosen(rows, _JOB_KEYS, filters, limit)


def list_nodes(
    address: str | None = None, filters: Iterable[Filter] | None = None, limit: int = LIMIT_DEFAULT, **unused: Any
) -> list[State]:
    """The nodes of the cluster, dead ones too as long as they are remembered."""
    _begin(address, unused)
    return _chosen([_node(row) for row in bireme.nodes()], _NODE_KEYS, filters, limit)


def list_placement_groups(
    address: str | None = None, filters: Iterable[Filter] | None = None, limit: int = LIMIT_DEFAULT, **unused: Any
) -> list[State]:
    """The placement groups of the cluster."""
    _begin(address, unused)
    return _chosen([_group(row) for row in _native.groups()], _GROUP_KEYS, filters, limit)


def get_task(id: str | Any, address: str | None = None, **unused: Any) -> State | None:
    """The task with this id, or the task of a reference; None when it is not known any more."""
    text = id if isinstance(id, str) else id.task_id()
    return _only(list_tasks(address, [("task_id", "=", text)], **unused))


def get_actor(id: str, address: str | None = None, **unused: Any) -> State | None:
    """The actor with this id; None when it is not known."""
    return _only(list_actors(address, [("actor_id", "=", id)], **unused))


def get_objects(id: str, address: str | None = None, **unused: Any) -> list[State]:
    """The object with this id, in a list; an empty one when it is not known."""
    return list_objects(address, [("object_id", "=", id)], **unused)


def get_worker(id: str, address: str | None = None, **unused: Any) -> State | None:
    """The worker with this id; None when it is not known."""
    return _only(list_workers(address, [("worker_id", "=", id)], **unused))


def get_job(id: str, address: str | None = None, **unused: Any) -> State | None:
    """The job with this id; None when it is not known."""
    return _only(list_jobs(address, [("job_id", "=", id)], **unused))


def get_node(id: str, address: str | None = None, **unused: Any) -> State | None:
    """The node with this id; None when it is not known."""
    return _only(list_nodes(address, [("node_id", "=", id)], **unused))


def get_placement_group(id: str, address: str | None = None, **unused: Any) -> State | None:
    """The placement group with this id; None when it is not known."""
    return _only(list_placement_groups(address, [("placement_group_id", "=", id)], **unused))


def summarize_tasks(address: str | None = None, **unused: Any) -> dict[str, Any]:
    """How many tasks of each name are in which state."""
    rows = [_task(row) for row in _state(address, unused)["tasks"]]
    return _summary(rows, "func_or_class_name", "func_name", "total_tasks")


def summarize_actors(address: str | None = None, **unused: Any) -> dict[str, Any]:
    """How many actors of each class are in which state."""
    rows = [_actor(row) for row in _state(address, unused)["actors"]]
    return _summary(rows, "class_name", "class", "total_actors")


def summarize_objects(address: str | None = None, **unused: Any) -> dict[str, Any]:
    """How many objects there are in which state, and their bytes."""
    rows = [_object(row) for row in _state(address, unused)["objects"]]
    sizes = sum(row["object_size"] or 0 for row in rows)
    counts = dict(Counter(row["state"] for row in rows))
    return {"cluster": {"state_counts": counts, "total_objects": len(rows), "total_size_bytes": sizes}}


# Parameters of Ray's that say how to ask, which takes no time here, and how much to tell, which is everything.
_UNUSED = ("timeout", "detail", "raise_on_missing_output", "_explain")


def _begin(address: str | None, unused: dict[str, Any]) -> None:
    for name in unused:
        if name not in _UNUSED:
            raise TypeError(f"there is no parameter {name!r}; use address, filters or limit")
    if not bireme.is_initialized():
        bireme.init(address=address)


def _state(address: str | None, unused: dict[str, Any]) -> dict[str, Any]:
    _begin(address, unused)
    return _native.state()


def _chosen(rows: list[State], keys: Sequence[str], filters: Iterable[Filter] | None, limit: int) -> list[State]:
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise ValueError(f"limit is how many rows to list, 1 or more, not {limit!r}")
    for each in filters or ():
        try:
            key, predicate, value = each
        except (TypeError, ValueError):
            raise ValueError(f"a filter is (key, '=' or '!=', value), not {each!r}") from None
        if key not in keys:
            raise ValueError(f"a filter cannot ask for {key!r}; the keys are {', '.join(keys)}")
        if predicate not in ("=", "!="):
            raise ValueError(f"a filter compares with '=' or '!=', not {predicate!r}")
        rows = [row for row in rows if _is_equal(row[key], value) == (predicate == "=")]
    return rows[:limit]


def _is_equal(found: Any, asked: Any) -> bool:
    # As on Ray's command line, where every value is text.
    return bool(found == asked) or str(found).lower() == str(asked).lower()


def _only(rows: list[State]) -> State | None:
    return rows[0] if rows else None


def _summary(rows: list[State], key: str, by: str, total: str) -> dict[str, Any]:
    summary: dict[str, Any] = {}
    for row in rows:
        counts = summary.setdefault(row[key], {key: row[key], "state_counts": {}})["state_counts"]
        counts[row["state"]] = counts.get(row["state"], 0) + 1
    return {"cluster": {"summary": summary, total: len(rows), "summary_by": by}}


def _task(row: dict[str, Any]) -> State:
    return State(
        task_id=row["task_id"],
        attempt_number=row["attempt"],
        name=row["name"],
        func_or_class_name=row["name"],
        state=_TASK_STATES[row["state"]],
        parent_task_id=row["parent_task_id"],
        owner_id=row["owner_id"],
        worker_id=row["worker_id"],
        node_id=row["node_id"],
        age_s=row["age_s"],
        run_s=row["run_s"],
    )


def _actor(row: dict[str, Any]) -> State:
    state = _ACTOR_STATES[row["state"]]
    if row["state"] in ("queued", "starting") and row["restarts"]:
        state = "RESTARTING"
    return State(
        actor_id=row["actor_id"],
        class_name=row["class_name"],
        state=state,
        name=row["name"],
        ray_namespace=row["namespace"],
        node_id=row["node_id"],
        worker_id=row["worker_id"],
        owner_id=row["owner_id"],
        pid=row["pid"],
        num_restarts=row["restarts"],
        death_cause=row["reason"],
    )


def _object(row: dict[str, Any]) -> State:
    return State(
        object_id=row["object_id"],
        object_size=row["size_bytes"],
        state={"ready": "READY", "awaited": "PENDING", "failed": "FAILED"}[row["state"]],
        is_stored=row["stored"],
        task_id=row["task_id"],
        owner_id=row["owner_id"],
        node_id=row["node_id"],
    )


def _worker(row: dict[str, Any]) -> State:
    return State(
        worker_id=row["worker_id"],
        node_id=row["node_id"],
        job_id=row["job_id"],
        pid=row["pid"],
        worker_type="WORKER",
        is_alive=row["state"] != "ending",
        state=row["state"].upper(),
    )


def _job(row: dict[str, Any]) -> State:
    return State(
        job_id=row["job_id"],
        status="FINISHED" if row["over"] else "RUNNING",
        driver_pid=row["pid"],
        driver_id=row["driver_id"],
        workers=row["workers"],
    )


def _node(row: dict[str, Any]) -> State:
    return State(
        node_id=row["NodeID"],
        node_ip=row["NodeManagerAddress"],
        node_name=row["NodeName"],
        state="ALIVE" if row["Alive"] else "DEAD",
        state_message=row["DeathReasonMessage"],
        is_head_node=row["Role"] in ("head", "embedded"),
        resources_total=row["Resources"],
        labels=row["Labels"],
    )


def _group(row: dict[str, Any]) -> State:
    return State(
        placement_group_id=row["id"],
        name=row["name"],
        state=row["state"],
        state_message=row["reason"],
        strategy=row["strategy"],
        bundles=row["bundles"],
        nodes=row["nodes"],
    )


# The keys of the rows, for filters of lists that are empty.
_TASK_KEYS = tuple(
    "task_id attempt_number name func_or_class_name state parent_task_id owner_id worker_id node_id age_s run_s".split()
)
_ACTOR_KEYS = tuple(
    "actor_id class_name state name ray_namespace node_id worker_id owner_id pid num_restarts death_cause".split()
)
_OBJECT_KEYS = ("object_id", "object_size", "state", "is_stored", "task_id", "owner_id", "node_id")
_WORKER_KEYS = ("worker_id", "node_id", "job_id", "pid", "worker_type", "is_alive", "state")
_JOB_KEYS = ("job_id", "status", "driver_pid", "driver_id", "workers")
_NODE_KEYS = tuple("node_id node_ip node_name state state_message is_head_node resources_total labels".split())
_GROUP_KEYS = ("placement_group_id", "name", "state", "state_message", "strategy", "bundles", "nodes")
