"""Placement groups: resources that are reserved together, for tasks and actors that have to run at the same time.

>>> import bireme
>>> from bireme.util import placement_group, remove_placement_group
>>> from bireme.util.scheduling_strategies import PlacementGroupSchedulingStrategy
>>> @bireme.remote
... def square(x):
...     return x * x
>>> context = bireme.init(num_cpus=2)
>>> group = placement_group([{"CPU": 1}, {"CPU": 1}])
>>> bireme.get(group.ready()) == group
True
>>> inside = square.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group, 1))
>>> bireme.get(inside.remote(3))
9
>>> remove_placement_group(group)
>>> bireme.shutdown()
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from bireme import _native, _option_checks
from bireme._native import ObjectRef

__all__ = [
    "PlacementGroup",
    "PlacementGroupID",
    "get_current_placement_group",
    "get_placement_group",
    "placement_group",
    "placement_group_table",
    "remove_placement_group",
]

STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")

_NIL = "0" * 32


class PlacementGroupID(str):
    """The id of a placement group as text."""

    def hex(self) -> str:
        """The text itself."""
        return str(self)

    def is_nil(self) -> bool:
        """Whether it is no group's."""
        return self == _NIL


class PlacementGroup:
    """A handle of a placement group. Dropping it changes nothing: a group ends when it is removed, when its program ends, or,
    when an actor made it, with that actor.
    """

    __slots__ = ("bundle_cache", "id")

    def __init__(self, id: PlacementGroupID, bundle_cache: list[dict[str, float]] | None = None) -> None:
        self.id = id
        self.bundle_cache = bundle_cache

    @staticmethod
    def empty() -> PlacementGroup:
        """No group."""
        return PlacementGroup(PlacementGroupID(_NIL), [])

    @property
    def is_empty(self) -> bool:
        """Whether it is no group."""
        return self.id.is_nil()

    def ready(self) -> ObjectRef[PlacementGroup]:
        """A reference to this group that is there when every bundle is reserved. `get` raises at once when that can never
        be, with the reason.
        """
        if self.is_empty:
            return _native.put(self)
        return _native.group_ready(self.id.hex(), self)

    def wait(self, timeout_seconds: float = 30) -> bool:
        """Waits until every bundle is reserved. False when the time is over; raises when it can never be."""
        from bireme.exceptions import GetTimeoutError

        try:
            _native.get(self.ready(), timeout_seconds)
        except GetTimeoutError:
            return False
        return True

    @property
    def bundle_specs(self) -> list[dict[str, float]]:
        """What each bundle reserves."""
        if self.bundle_cache is None:
            row = _row_of(self.id)
            if row is None:
                raise ValueError(f"there is no placement group {self.id}: it was never created, or was removed long ago")
            self.bundle_cache = row["bundles"]
        return self.bundle_cache

    @property
    def bundle_count(self) -> int:
        """How many bundles it has."""
        return len(self.bundle_specs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlacementGroup) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"PlacementGroup({self.id})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (PlacementGroup, (self.id, self.bundle_cache))


def placement_group(
    bundles: list[dict[str, float]],
    strategy: str | None = None,
    name: str = "",
    lifetime: str | None = None,
    _soft_target_node_id: str | None = None,
    bundle_label_selector: list[dict[str, str]] | None = None,
    topology_strategy: dict[str, str] | None = None,
) -> PlacementGroup:
    """Asks for a placement group and gives its handle at once; `ready` and `wait` tell when it is there.

    Each bundle is a dictionary such as ``{"CPU": 2, "GPU": 0.5, "memory": 1e9, "licence": 1}``. The strategy says how they lie
    on the nodes: "PACK" (on as few as possible), "SPREAD" (on as many as possible), "STRICT_PACK" (on one) or "STRICT_SPREAD"
    (each on another). With ``lifetime="detached"`` it ends only when it is removed.
    """
    for option, given in (
        ("_soft_target_node_id", _soft_target_node_id),
        ("bundle_label_selector", bundle_label_selector),
        ("topology_strategy", topology_strategy),
    ):
        if given:
            _option_checks.not_yet()(option, given)
    strategy = "PACK" if strategy is None else strategy
    if strategy not in STRATEGIES:
        raise ValueError(f"there is no strategy {strategy!r} for placement groups; use {', '.join(STRATEGIES)}")
    if not isinstance(name, str):
        raise TypeError(f"the name of a placement group is text, not a {type(name).__name__}")
    if lifetime not in (None, "detached"):
        raise ValueError(f"the lifetime of a placement group must be None or 'detached', not {lifetime!r}")
    checked = _check_bundles(bundles)
    group = _native.create_group(checked, strategy, name or None, lifetime == "detached")
    return PlacementGroup(PlacementGroupID(group), checked)


def _check_bundles(bundles: Any) -> list[dict[str, float]]:
    example = 'such as [{"CPU": 1}, {"GPU": 1}]'
    if not isinstance(bundles, list):
        raise ValueError(f"bundles must be a list of dictionaries, {example}, not a {type(bundles).__name__}")
    if not bundles:
        raise ValueError(f"a placement group needs at least one bundle, {example}")
    return [_check_bundle(f"bundles[{at}]", bundle, example) for at, bundle in enumerate(bundles)]


def _check_bundle(name: str, bundle: Any, example: str) -> dict[str, float]:
    if not isinstance(bundle, Mapping):
        raise ValueError(f"{name} must be a dictionary from names to numbers, {example}, not {bundle!r}")
    amounts = {}
    for resource, given in bundle.items():
        if not isinstance(resource, str) or not resource:
            raise ValueError(f"{name} must name its resources by text, not by {resource!r}")
        check = _option_checks.gpus if resource == "GPU" else _option_checks.amount
        amounts[resource] = check(f"{name}[{resource!r}]", given)
    if not any(amounts.values()):
        raise ValueError(f"{name} reserves nothing: a bundle cannot be empty or have only zeros")
    return amounts


def remove_placement_group(placement_group: PlacementGroup) -> None:
    """Gives a placement group up. What runs in it is ended; what waits to run in it, and later tasks, fail."""
    if not isinstance(placement_group, PlacementGroup):
        raise TypeError(f"remove_placement_group takes a PlacementGroup, not a {type(placement_group).__name__}")
    if not placement_group.is_empty:
        _native.remove_group(placement_group.id.hex())


def get_placement_group(placement_group_name: str) -> PlacementGroup:
    """The placement group with this name, in this program's namespace."""
    if not isinstance(placement_group_name, str) or not placement_group_name:
        raise ValueError(f"a placement group's name is text that is not empty, not {placement_group_name!r}")
    row = _native.find_group(placement_group_name)
    if row is None:
        raise ValueError(
            f"there is no placement group named {placement_group_name!r}: it was never created under this name, or was removed"
        )
    return PlacementGroup(PlacementGroupID(row["id"]), row["bundles"])


def get_current_placement_group() -> PlacementGroup | None:
    """The placement group that the calling task or actor runs in; None elsewhere."""
    group = _native.current_group()
    return None if group is None else PlacementGroup(PlacementGroupID(group))


def placement_group_table(placement_group: PlacementGroup | None = None) -> dict[str, Any]:
    """What is known of one placement group, or of each by its id: its bundles, where they lie, and its state.

    A group is PENDING, CREATED, RESCHEDULING, INFEASIBLE or REMOVED; `reason` says what it waits for, or why it can
    never be.
    """
    if placement_group is not None:
        row = _row_of(placement_group.id)
        return {} if row is None else _portray(row)
    return {row["id"]: _portray(row) for row in _native.groups()}


def _row_of(group: str) -> dict[str, Any] | None:
    return next((row for row in _native.groups() if row["id"] == group), None)


def _portray(row: dict[str, Any]) -> dict[str, Any]:
    nodes = {at: node for at, node in enumerate(row["nodes"]) if node is not None}
    return {
        "placement_group_id": row["id"],
        "name": row["name"] or "",
        "bundles": dict(enumerate(row["bundles"])),
        "bundles_to_node_id": nodes,
        "strategy": row["strategy"],
        "state": row["state"],
        "reason": row["reason"],
    }


def check_placement_group_index(placement_group: PlacementGroup | None, bundle_index: Any) -> None:
    """Refuses a bundle that the group does not have; -1 is any."""
    if isinstance(bundle_index, bool):
        raise TypeError(f"placement_group_bundle_index must be a whole number, not {bundle_index!r}")
    try:
        index = operator.index(bundle_index)
    except TypeError:
        raise TypeError(f"placement_group_bundle_index must be a whole number, not {bundle_index!r}") from None
    if index == -1:
        return
    if placement_group is None or placement_group.is_empty:
        raise ValueError("placement_group_bundle_index must be -1 when there is no placement group")
    if not 0 <= index < placement_group.bundle_count:
        most = placement_group.bundle_count - 1
        raise ValueError(f"the placement group has no bundle {index}: use 0 to {most}, or -1 for any")


class _CallableModule(ModuleType):
    """The module has the name of its most important function, so that it is both: `bireme.util.placement_group` can be
    imported from, and called.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> PlacementGroup:
        return placement_group(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
