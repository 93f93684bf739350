"""Where tasks and actors run, how long actors live, and which GPUs they see."""

from __future__ import annotations

import os
import pickle
from typing import Any

import pytest
from conftest import await_condition

import bireme
from bireme._options import ActorOptions, TaskOptions
from bireme.context import Context
from bireme.exceptions import ActorDiedError, TaskUnschedulableError
from bireme.util.placement_group import PlacementGroup, PlacementGroupID
from bireme.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

GROUP = PlacementGroup(PlacementGroupID("1" * 32), [{"CPU": 1.0}, {"CPU": 2.0, "GPU": 1.0}])
VISIBLE = "CUDA_VISIBLE_DEVICES"


@bireme.remote
def node() -> str:
    return bireme.get_runtime_context().get_node_id()


@bireme.remote
class Counter:
    def __init__(self) -> None:
        self.total = 0

    def add(self) -> int:
        self.total += 1
        return self.total

    def pid(self) -> int:
        return os.getpid()

    def visible(self) -> str | None:
        return os.environ.get(VISIBLE)


def test_strategies_choose_the_node(runtime: Context) -> None:
    here = bireme.get_runtime_context().get_node_id()
    assert [row["NodeID"] for row in bireme.nodes()] == [here]
    strategies: list[Any] = [None, "DEFAULT", "SPREAD", NodeAffinitySchedulingStrategy(here, soft=False)]
    strategies.append(NodeAffinitySchedulingStrategy("000000ff", soft=True))
    for strategy in strategies:
        assert bireme.get(node.options(scheduling_strategy=strategy).remote()) == here
        actor = Counter.options(scheduling_strategy=strategy).remote()
        assert bireme.get(actor.add.remote()) == 1


def test_a_node_that_is_not_there_is_an_error_at_once(runtime: Context) -> None:
    elsewhere = NodeAffinitySchedulingStrategy("000000FF", soft=False)
    with pytest.raises(TaskUnschedulableError, match="on node 000000ff.*only node"):
        bireme.get(node.options(scheduling_strategy=elsewhere).remote(), timeout=20)
    with pytest.raises(ActorDiedError, match="on node 000000ff"):
        bireme.get(Counter.options(scheduling_strategy=elsewhere).remote().add.remote(), timeout=20)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: NodeAffinitySchedulingStrategy("head", soft=True), ValueError, "eight hexadecimal digits"),
        (lambda: NodeAffinitySchedulingStrategy(1, soft=True), TypeError, "node_id"),  # type: ignore[arg-type]
        (lambda: NodeAffinitySchedulingStrategy("0" * 8, soft=1), TypeError, "soft"),  # type: ignore[arg-type]
        (lambda: PlacementGroupSchedulingStrategy(GROUP, 2), ValueError, "no bundle 2: use 0 to 1"),
        (lambda: PlacementGroupSchedulingStrategy(GROUP, -2), ValueError, "no bundle -2"),
        (lambda: PlacementGroupSchedulingStrategy(GROUP, 0.5), TypeError, "whole number"),  # type: ignore[arg-type]
        (lambda: PlacementGroupSchedulingStrategy(None, 1), ValueError, "must be -1"),
        (lambda: PlacementGroupSchedulingStrategy("ring"), TypeError, "PlacementGroup"),  # type: ignore[arg-type]
        (
            lambda: PlacementGroupSchedulingStrategy(GROUP, -1, "yes"),  # type: ignore[arg-type]
            TypeError,
            "placement_group_capture_child_tasks",
        ),
    ],
)
def test_mistakes_are_told_where_a_strategy_is_made(make: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make()


@pytest.mark.parametrize("kind", [TaskOptions, ActorOptions])
def test_what_fits_into_no_bundle_is_told_where_the_options_are_chosen(kind: Any) -> None:
    in_any, in_first = PlacementGroupSchedulingStrategy(GROUP), PlacementGroupSchedulingStrategy(GROUP, 0)
    assert kind(num_cpus=2, num_gpus=1, scheduling_strategy=in_any).scheduling_strategy == in_any
    with pytest.raises(ValueError, match="'CPU': 3.0.*does not fit into any bundle"):
        kind(num_cpus=3, scheduling_strategy=in_any)
    with pytest.raises(ValueError, match="does not fit into bundle 0"):
        kind(scheduling_strategy=in_first).merge(num_cpus=2)
    with pytest.raises(ValueError, match="licence"):
        kind(resources={"licence": 1}, scheduling_strategy=in_any)


def test_strategies_are_values() -> None:
    for strategy in (
        NodeAffinitySchedulingStrategy("0000000a", soft=False),
        PlacementGroupSchedulingStrategy(GROUP, 1, True),
        PlacementGroupSchedulingStrategy(None),
    ):
        again = pickle.loads(pickle.dumps(strategy))
        assert again == strategy and hash(again) == hash(strategy) and repr(again) == repr(strategy)
    options = TaskOptions(scheduling_strategy=PlacementGroupSchedulingStrategy(GROUP, 1))
    assert pickle.loads(pickle.dumps(options)) == options != TaskOptions(scheduling_strategy="SPREAD")


def test_a_detached_actor_outlives_its_handles_and_its_owner(runtime: Context) -> None:
    @bireme.remote(max_retries=0, num_cpus=0)
    def make(name: str, lifetime: str | None) -> int:
        actor = Counter.options(name=name, lifetime=lifetime).remote()
        bireme.get(actor.add.remote())
        return os.getpid()

    pid = bireme.get(make.remote("lasting", "detached"))
    bireme.get(make.remote("fleeting", None))
    await_condition(lambda: bireme.util.list_named_actors() == ["lasting"], "the other one to go with its handles")
    lasting = bireme.get_actor("lasting")
    assert bireme.get(lasting.add.remote()) == 2
    os.kill(pid, 9)
    await_condition(lambda: not os.path.exists(f"/proc/{pid}"), "its owner to be gone")
    del lasting
    again = bireme.get_actor("lasting")
    assert bireme.get(again.add.remote()) == 3

    @bireme.remote(num_cpus=0)
    def pass_on(actor: Any) -> int:
        return bireme.get(actor.add.remote())

    assert bireme.get(pass_on.remote(again)) == 4
    existing = Counter.options(name="lasting", lifetime="detached", get_if_exists=True).remote()
    assert bireme.get(existing.add.remote()) == 5
    bireme.kill(again)
    await_condition(lambda: bireme.util.list_named_actors() == [], "the name to be free")


def test_a_detached_actor_of_the_driver_needs_no_handle_and_no_name(runtime: Context) -> None:
    named = Counter.options(name="kept", lifetime="detached").remote()
    assert bireme.get(named.add.remote()) == 1
    del named
    assert bireme.get(bireme.get_actor("kept").add.remote()) == 2
    nameless = Counter.options(lifetime="detached").remote()
    pid = bireme.get(nameless.pid.remote())
    del nameless
    assert bireme.get(node.remote()) and os.path.exists(f"/proc/{pid}"), "as with Ray, it lives until the cluster ends"


@pytest.mark.parametrize("runtime", [{"num_cpus": 2, "num_gpus": 3}], indirect=True)
def test_only_who_asked_for_gpus_sees_some(runtime: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    @bireme.remote(max_retries=0)
    def visible() -> tuple[str | None, list[int], int]:
        return os.environ.get(VISIBLE), bireme.get_gpu_ids(), os.getpid()

    untouched = bireme.get(visible.remote())[0]
    assert untouched == os.environ.get(VISIBLE)
    shown, indices, _ = bireme.get(visible.options(num_gpus=2).remote())
    assert shown == ",".join(str(index) for index in indices) and len(indices) == 2
    half = visible.options(num_gpus=0.5)
    assert bireme.get(half.remote())[0] in ("0", "1", "2")
    # Whichever process it is: after a task with GPUs the variable is as it was.
    for _ in range(8):
        assert bireme.get(visible.remote())[0] == untouched
    actor = Counter.options(num_gpus=1).remote()
    assert bireme.get(actor.visible.remote()) in ("0", "1", "2")
    assert bireme.get(Counter.remote().visible.remote()) == untouched


def test_gpus_count_within_what_the_program_itself_may_see(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VISIBLE, "4, 5,GPU-7")
    with bireme.init(num_cpus=1, num_gpus=3):

        @bireme.remote(num_gpus=3)
        def visible() -> str | None:
            return os.environ.get(VISIBLE)

        assert bireme.get(visible.remote()) == "4,5,GPU-7"
        assert bireme.get(visible.options(num_gpus=0).remote()) == "4, 5,GPU-7"


@pytest.mark.parametrize("runtime", [{"num_cpus": 4}], indirect=True)
def test_memory_is_a_resource_of_tasks_and_actors(runtime: Context) -> None:
    total = bireme.cluster_resources()["memory"]
    holder = Counter.options(memory=total / 2).remote()
    assert bireme.get(holder.add.remote()) == 1
    assert bireme.available_resources()["memory"] == pytest.approx(total / 2, abs=1)
    with pytest.raises(TaskUnschedulableError, match="bytes of memory"):
        bireme.get(node.options(memory=2 * total).remote(), timeout=20)
    assert bireme.get(node.options(memory=1000).remote())


def test_nodes_have_what_ray_says_of_them(runtime: Context) -> None:
    (row,) = bireme.nodes()
    assert set(row) >= {"NodeID", "Alive", "NodeManagerAddress", "NodeManagerHostname", "Resources", "Labels"}
    assert len(row["NodeID"]) == 8 and int(row["NodeID"], 16) >= 0
    assert row["Alive"] is row["alive"] is True and row["Draining"] is False and row["DeathReasonMessage"] == ""
    assert bireme.util.get_node_ip_address() == row["NodeManagerAddress"] == "127.0.0.1"
    assert bireme.get(bireme.remote(bireme.util.get_node_ip_address).remote()) == "127.0.0.1"
