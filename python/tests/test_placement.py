"""Placement groups: reserved together or not at all, what runs in them, and what is told when that cannot be."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from conftest import await_condition

import bireme
from bireme.context import Context
from bireme.exceptions import (
    ActorDiedError,
    GetTimeoutError,
    PlacementGroupUnschedulableError,
    TaskPlacementGroupRemoved,
    TaskUnschedulableError,
)
from bireme.util.placement_group import (
    PlacementGroup,
    get_current_placement_group,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from bireme.util.scheduling_strategies import PlacementGroupSchedulingStrategy as In

FOUR_CPUS = pytest.mark.parametrize("runtime", [{"num_cpus": 4}], indirect=True)


@bireme.remote
def where() -> str | None:
    group = get_current_placement_group()
    return None if group is None else group.id.hex()


@bireme.remote(max_retries=0)
def hold(gate: Path) -> str:
    """Runs, without waiting for anything that would lend its CPU to others, until the gate is open."""
    gate.with_suffix(".entered").touch()
    await_condition(gate.exists, "the gate to open")
    return "held"


def await_entered(gate: Path) -> None:
    await_condition(gate.with_suffix(".entered").exists, "a task to run")


def available(resource: str = "CPU") -> float:
    return bireme.available_resources().get(resource, 0.0)


@FOUR_CPUS
def test_a_group_is_reserved_as_a_whole_and_given_back(runtime: Context) -> None:
    group = placement_group([{"CPU": 1}, {"CPU": 2}], strategy="PACK")
    assert bireme.get(group.ready(), timeout=20) == group
    assert group.wait(5) is True
    assert (group.bundle_count, group.bundle_specs) == (2, [{"CPU": 1.0}, {"CPU": 2.0}])
    assert available() == 1.0 and bireme.cluster_resources()["CPU"] == 4.0
    remove_placement_group(group)
    await_condition(lambda: available() == 4.0, "the bundles to come back")
    remove_placement_group(group)


@FOUR_CPUS
def test_tasks_and_actors_run_in_their_bundle(runtime: Context, tmp_path: Path) -> None:
    group = placement_group([{"CPU": 1}, {"CPU": 2}])
    inside = where.options(scheduling_strategy=In(group, 1))
    assert bireme.get([where.remote(), inside.remote()]) == [None, group.id.hex()]
    actor = bireme.remote(Probe).options(num_cpus=2, scheduling_strategy=In(group)).remote()
    assert bireme.get(actor.group.remote()) == group.id.hex()
    assert bireme.get(actor.context_group.remote()) == group.id.hex()
    await_condition(lambda: available() == 1.0, "the first task's lease to end: what the actor holds is the bundle's")
    gate = tmp_path / "gate"
    # Bundle 1 is the actor's, so only bundle 0 is left for tasks of one CPU.
    one, two = (hold.options(scheduling_strategy=In(group)).remote(gate) for _ in range(2))
    await_entered(gate)
    other = where.options(num_cpus=0.5, scheduling_strategy=In(group, 0)).remote()
    with pytest.raises(GetTimeoutError, match="bundle 0 of group-.*0 of 1 CPUs are free"):
        bireme.get(other, timeout=0.5)
    gate.touch()
    assert bireme.get([one, two, other]) == ["held", "held", group.id.hex()]


class Probe:
    def group(self) -> str | None:
        found = get_current_placement_group()
        return None if found is None else found.id.hex()

    def context_group(self) -> str | None:
        return bireme.get_runtime_context().get_placement_group_id()

    def of_child(self, inside: Any) -> str | None:
        return bireme.get(inside.remote())


@FOUR_CPUS
def test_children_follow_only_when_they_are_captured(runtime: Context) -> None:
    group = placement_group([{"CPU": 3}])

    @bireme.remote
    def parent(strategy: Any) -> list[str | None]:
        child = where if strategy is None else where.options(scheduling_strategy=strategy)
        return [bireme.get(child.remote())]

    captured = parent.options(scheduling_strategy=In(group, placement_group_capture_child_tasks=True))
    assert bireme.get(captured.remote(None)) == [group.id.hex()]
    assert bireme.get(captured.remote("DEFAULT")) == [None], "who chooses a place has it"
    assert bireme.get(parent.options(scheduling_strategy=In(group)).remote(None)) == [None]
    actor_class = bireme.remote(Probe)
    actor = actor_class.options(scheduling_strategy=In(group, placement_group_capture_child_tasks=True)).remote()
    assert bireme.get(actor.of_child.remote(where)) == group.id.hex()


@FOUR_CPUS
def test_a_group_waits_for_what_is_taken_and_says_for_what(runtime: Context, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    holder = hold.options(num_cpus=3, name="holder").remote(gate)
    await_entered(gate)
    group = placement_group([{"CPU": 1}, {"CPU": 1}])
    assert group.wait(0.2) is False
    with pytest.raises(GetTimeoutError, match="queued for 2 CPUs.*1 of 4 CPUs are free.*holder"):
        bireme.get(group.ready(), timeout=0.2)
    row = placement_group_table(group)
    assert (row["state"], row["strategy"], row["bundles_to_node_id"]) == ("PENDING", "PACK", {})
    assert "1 of 4 CPUs are free" in row["reason"]
    assert available() == 1.0, "nothing is taken before everything is there"
    gate.touch()
    assert bireme.get(holder) == "held"
    assert group.wait(20) is True
    row = placement_group_table(group)
    node = bireme.get_runtime_context().get_node_id()
    assert (row["state"], row["bundles_to_node_id"]) == ("CREATED", {0: node, 1: node})
    assert row["bundles"] == {0: {"CPU": 1.0}, 1: {"CPU": 1.0}}


@FOUR_CPUS
@pytest.mark.parametrize(
    ("bundles", "strategy", "reason"),
    [
        ([{"CPU": 5}], "PACK", "bundle 0 asks for 5 CPUs, but there is only 4 CPUs"),
        ([{"CPU": 3}, {"CPU": 2}], "STRICT_PACK", "ask for 5 CPUs together"),
        ([{"GPU": 1}], "PACK", "1 GPUs"),
        ([{"licence": 1}], "SPREAD", "licence"),
        ([{"CPU": 1}, {"CPU": 1}], "STRICT_SPREAD", "STRICT_SPREAD wants 2 nodes"),
    ],
)
def test_what_can_never_be_placed_is_an_error_at_once(
    runtime: Context, bundles: list[dict[str, float]], strategy: str, reason: str
) -> None:
    group = placement_group(bundles, strategy=strategy)
    for ask in (lambda: bireme.get(group.ready(), timeout=20), lambda: group.wait(20)):
        with pytest.raises(PlacementGroupUnschedulableError, match=reason) as caught:
            ask()
        assert caught.value.placement_group_id == group.id.hex()
    with pytest.raises(PlacementGroupUnschedulableError, match=reason):
        inside = where.options(num_cpus=0, scheduling_strategy=In(group))
        bireme.get(inside.remote(), timeout=20)
    row = placement_group_table(group)
    assert row["state"] == "INFEASIBLE" and reason in row["reason"]


@FOUR_CPUS
def test_a_removed_group_ends_what_runs_in_it(runtime: Context, tmp_path: Path) -> None:
    group, gate = placement_group([{"CPU": 2}]), tmp_path / "gate"
    actor = bireme.remote(Probe).options(num_cpus=1, max_restarts=5, scheduling_strategy=In(group)).remote()
    bireme.get(actor.group.remote())
    inside = hold.options(scheduling_strategy=In(group), max_retries=3)
    running, waiting = inside.remote(gate), inside.remote(gate)
    await_entered(gate)
    remove_placement_group(group)
    for ref in (running, waiting, inside.remote(gate), group.ready()):
        with pytest.raises(TaskPlacementGroupRemoved, match="it was removed"):
            bireme.get(ref, timeout=20)
    with pytest.raises(ActorDiedError, match="placement group"):
        # A call that was with the actor before the signal may still be answered.
        await_condition(lambda: bireme.get(actor.group.remote(), timeout=20) is None, "the actor to be ended")
    await_condition(lambda: available() == 4.0, "everything to come back")
    assert placement_group_table(group)["state"] == "REMOVED"


@FOUR_CPUS
def test_groups_have_names_and_travel(runtime: Context) -> None:
    group = placement_group([{"CPU": 1}], name="ring")
    assert get_placement_group("ring") == group == bireme.util.get_placement_group("ring")
    assert get_placement_group("ring").bundle_specs == [{"CPU": 1.0}]
    with pytest.raises(ValueError, match="the name 'ring' belongs to group-|\"ring\" belongs to group-"):
        placement_group([{"CPU": 1}], name="ring")
    again = pickle.loads(pickle.dumps(group))
    assert again == group and hash(again) == hash(group) and again.bundle_specs == group.bundle_specs

    @bireme.remote
    def use(given: PlacementGroup) -> tuple[bool, str | None]:
        found = get_placement_group("ring")
        inside = where.options(num_cpus=0, scheduling_strategy=In(found))
        return bireme.get(given.ready()) == given == found, bireme.get(inside.remote())

    assert bireme.get(use.remote(group)) == (True, group.id.hex())
    assert placement_group_table()[group.id.hex()]["name"] == "ring"
    remove_placement_group(group)
    with pytest.raises(ValueError, match="no placement group named 'ring'"):
        get_placement_group("ring")
    placement_group([{"CPU": 1}], name="ring")


@FOUR_CPUS
def test_a_group_of_an_actor_ends_with_it_unless_it_is_detached(runtime: Context) -> None:
    @bireme.remote
    class Maker:
        def make(self, lifetime: str | None) -> PlacementGroup:
            return placement_group([{"CPU": 1}], lifetime=lifetime)

    maker = Maker.remote()
    bound, free = bireme.get([maker.make.remote(None), maker.make.remote("detached")])
    assert bound.wait(20) and free.wait(20)
    bireme.kill(maker)
    await_condition(lambda: placement_group_table(bound)["state"] == "REMOVED", "the group to go with its actor")
    with pytest.raises(TaskPlacementGroupRemoved, match="the actor that created it is dead"):
        bound.wait(20)
    assert free.wait(20) and available() == 3.0


@FOUR_CPUS
def test_a_task_that_made_a_group_and_died_finds_it_again(runtime: Context, tmp_path: Path) -> None:
    marker = str(tmp_path / "ran")

    @bireme.remote(max_retries=2, num_cpus=0)
    def make(marker: str) -> str:
        group = placement_group([{"CPU": 1}])
        bireme.get(group.ready())
        if not os.path.exists(marker):
            open(marker, "w").close()
            os._exit(1)
        return group.id.hex()

    made = bireme.get(make.remote(marker))
    assert list(placement_group_table()) == [made] and available() == 3.0


@pytest.mark.parametrize("runtime", [{"num_cpus": 2, "num_gpus": 2}], indirect=True)
def test_gpus_of_a_bundle_are_given_by_index(runtime: Context) -> None:
    group = placement_group([{"GPU": 0.5}, {"GPU": 1}])
    bireme.get(group.ready())

    @bireme.remote(num_cpus=0)
    def gpus() -> list[int]:
        return bireme.get_gpu_ids()

    ask = [gpus.options(num_gpus=n, scheduling_strategy=In(group, at)).remote() for at, n in ((0, 0.5), (1, 1))]
    small, whole = bireme.get(ask)
    assert len(small) == len(whole) == 1 and small != whole
    assert available("GPU") == 0.5


@FOUR_CPUS
@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"bundles": []}, ValueError, "at least one bundle"),
        ({"bundles": {"CPU": 1}}, ValueError, "must be a list"),
        ({"bundles": [{}]}, ValueError, r"bundles\[0\] reserves nothing"),
        ({"bundles": [{"CPU": 1}, {"CPU": 0}]}, ValueError, r"bundles\[1\] reserves nothing"),
        ({"bundles": [{"CPU": -1}]}, ValueError, r"bundles\[0\]\['CPU'\].*-1"),
        ({"bundles": [{"CPU": "1"}]}, TypeError, r"bundles\[0\]\['CPU'\].*str"),
        ({"bundles": [{"GPU": 1.5}]}, ValueError, "whole number"),
        ({"bundles": [{1: 1}]}, ValueError, "by text"),
        ({"bundles": [5]}, ValueError, "dictionary"),
        ({"strategy": "TIGHT"}, ValueError, "TIGHT.*STRICT_PACK"),
        ({"lifetime": "short"}, ValueError, "'detached'"),
        ({"name": 5}, TypeError, "name"),
        ({"bundle_label_selector": [{"a": "b"}]}, bireme.exceptions.NotSupportedError, "bundle_label_selector"),
    ],
)
def test_mistakes_are_told_at_the_call(
    runtime: Context, arguments: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        placement_group(**{"bundles": [{"CPU": 1}], **arguments})
    assert placement_group_table() == {}


@FOUR_CPUS
def test_the_module_and_its_function_are_one_name(runtime: Context) -> None:
    group = bireme.util.placement_group([{"CPU": 1}])
    assert isinstance(group, bireme.util.PlacementGroup) and group.wait(20)
    with pytest.raises(TypeError, match="PlacementGroup"):
        remove_placement_group("ring")  # type: ignore[arg-type]
    assert PlacementGroup.empty().is_empty and bireme.get(PlacementGroup.empty().ready()).is_empty
    with pytest.raises(TaskPlacementGroupRemoved, match="never created"):
        PlacementGroup(type(group.id)("f" * 32)).wait(20)


@FOUR_CPUS
def test_what_the_options_cannot_see_is_told_by_the_node(runtime: Context) -> None:
    group = placement_group([{"CPU": 1}])
    unaware = PlacementGroup(group.id, [{"CPU": 3.0}])
    with pytest.raises(TaskUnschedulableError, match="2 CPUs in bundle 0 of group-.*only 1 CPUs"):
        bireme.get(where.options(num_cpus=2, scheduling_strategy=In(unaware, 0)).remote(), timeout=20)
