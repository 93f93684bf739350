"""`bireme.util.state`, `bireme.state()` and `bireme.explain()`: what the engine knows, as lists."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import await_condition

import bireme
from bireme.util.state import (
    get_actor,
    get_job,
    get_node,
    get_objects,
    get_placement_group,
    get_task,
    get_worker,
    list_actors,
    list_jobs,
    list_nodes,
    list_objects,
    list_placement_groups,
    list_tasks,
    list_workers,
    summarize_actors,
    summarize_objects,
    summarize_tasks,
)


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    bireme.init(num_cpus=2, namespace="here")
    yield
    bireme.shutdown()


@bireme.remote(num_cpus=0)
class Gate:
    """Lets tests hold a task until they say so."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()

    async def open(self) -> None:
        self.opened.set()

    async def wait(self) -> int:
        await self.opened.wait()
        return os.getpid()


@bireme.remote
def held(gate: Any) -> int:
    bireme.get(gate.wait.remote())
    return os.getpid()


@bireme.remote(max_retries=0)
def broken() -> None:
    raise ValueError("no")


@bireme.remote(resources={"nothing": 1})
class Nowhere:
    pass


def test_tasks_by_state() -> None:
    gate = Gate.remote()
    running = held.remote(gate)
    await_condition(lambda: get_task(running)["state"] == "RUNNING", "the task to run")  # type: ignore[index]
    failed = broken.remote()
    bireme.wait([failed])
    (row,) = list_tasks(filters=[("state", "=", "RUNNING"), ("name", "=", "held")])
    assert row.task_id == running.task_id() and row["func_or_class_name"] == "held"
    assert row.node_id == bireme.get_runtime_context().get_node_id()
    await_condition(lambda: get_task(failed)["state"] == "FAILED", "the failure to be recorded")  # type: ignore[index]
    others = list_tasks(filters=[("name", "!=", "held")])
    assert failed.task_id() in {each.task_id for each in others} and row not in others
    worker = get_worker(row.worker_id)
    bireme.get(gate.open.remote())
    assert worker is not None and worker.pid == bireme.get(running)
    assert worker.job_id == bireme.get_runtime_context().get_job_id()
    await_condition(lambda: get_task(running)["state"] == "FINISHED", "the end of the task")  # type: ignore[index]
    summary = summarize_tasks()["cluster"]
    assert summary["summary"]["held"] == {"func_or_class_name": "held", "state_counts": {"FINISHED": 1}}
    assert summary["summary"]["broken"]["state_counts"] == {"FAILED": 1}
    assert summary["total_tasks"] >= 2 and summary["summary_by"] == "func_name"


def test_actors_live_and_dead() -> None:
    gate = Gate.options(name="gate").remote()
    bireme.get(gate.open.remote())
    (row,) = list_actors()
    assert (row.class_name, row.state, row.name, row.ray_namespace) == ("Gate", "ALIVE", "gate", "here")
    assert row.actor_id == gate._actor_id.hex() and row.num_restarts == 0 and row.death_cause is None
    assert row.pid == bireme.get(gate.wait.remote())
    assert get_actor(row.actor_id) == row and get_actor("0" * 32) is None
    bireme.kill(gate)
    await_condition(lambda: list_actors(filters=[("state", "=", "DEAD")]), "the actor's end")
    assert list_actors()[0].death_cause
    assert summarize_actors() == {
        "cluster": {
            "summary": {"Gate": {"class_name": "Gate", "state_counts": {"DEAD": 1}}},
            "total_actors": 1,
            "summary_by": "class",
        }
    }


def test_objects_and_their_sizes() -> None:
    small, large = bireme.put("small"), bireme.put(bytes(1 << 20))
    rows = {row.object_id: row for row in list_objects()}
    assert not rows[small.hex()].is_stored
    assert rows[large.hex()].is_stored and rows[large.hex()].object_size >= 1 << 20
    assert get_objects(large.hex()) == [rows[large.hex()]]
    assert summarize_objects()["cluster"]["state_counts"] == {"READY": 2}


def test_nodes_jobs_and_placement_groups() -> None:
    context = bireme.get_runtime_context()
    (node,) = list_nodes()
    assert (node.node_id, node.state, node.is_head_node) == (context.get_node_id(), "ALIVE", True)
    assert node.resources_total["CPU"] == 2.0 and get_node(node.node_id) == node
    (job,) = list_jobs(filters=[("status", "=", "RUNNING")])
    assert (job.job_id, job.driver_pid) == (context.get_job_id(), os.getpid()) and get_job(job.job_id) == job
    group = bireme.util.placement_group([{"CPU": 1}], name="trainers")
    bireme.get(group.ready())
    (row,) = list_placement_groups(filters=[("state", "=", "CREATED")])
    assert (row.name, row.bundles) == ("trainers", [{"CPU": 1.0}]) and get_placement_group(row.placement_group_id) == row
    assert list_workers() == [] or all(worker.pid for worker in list_workers(filters=[("state", "!=", "STARTING")]))


def test_limits_and_wrong_filters() -> None:
    refs = [bireme.put(n) for n in range(5)]
    assert len(list_objects(limit=3)) == 3 and len(list_objects(limit=100)) == len(refs)
    # As Ray takes them, for how long to wait and how much to tell.
    assert len(list_objects(timeout=5, detail=True, raise_on_missing_output=False)) == len(refs)
    with pytest.raises(ValueError, match="'stat'.*state"):
        list_tasks(filters=[("stat", "=", "RUNNING")])
    with pytest.raises(ValueError, match="'<'"):
        list_tasks(filters=[("state", "<", "RUNNING")])
    with pytest.raises(ValueError, match="a filter is"):
        list_tasks(filters=["state"])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="limit"):
        list_tasks(limit=0)
    with pytest.raises(TypeError, match="'filter'"):
        list_tasks(filter=[])
    with pytest.raises(AttributeError, match="object_id"):
        list_objects()[0].size


def test_state_at_the_top_and_explain() -> None:
    gate = Gate.remote()
    blockers = [held.remote(gate) for _ in range(2)]
    await_condition(lambda: len(list_tasks(filters=[("state", "=", "RUNNING"), ("name", "=", "held")])) == 2, "both run")
    heavy = held.options(num_cpus=2).remote(gate)
    state = bireme.state()
    assert {"tasks", "objects", "actors", "workers", "leases", "jobs", "resources", "counts"} <= set(state)
    assert state["resources"]["total"]["CPU"] == 2.0 and state["counts"]["submitted"] >= 3
    assert "held" in bireme.explain(blockers[0])
    assert bireme.explain(heavy)
    with pytest.raises(TypeError, match="reference"):
        bireme.explain("heavy")
    bireme.get(gate.open.remote())
    bireme.get([*blockers, heavy])


def test_what_waits_is_not_alive() -> None:
    bireme.shutdown()
    bireme.init(num_cpus=1, resources={"nothing": 1})
    first = Nowhere.remote()
    bireme.get(first.__ray_ready__.remote())
    second = Nowhere.remote()
    await_condition(lambda: list_actors(filters=[("state", "=", "PENDING_CREATION")]), "the second to be known")
    (row,) = list_actors(filters=[("state", "=", "PENDING_CREATION")])
    assert row.actor_id == second._actor_id.hex() and row.pid is None
