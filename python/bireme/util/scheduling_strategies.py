"""Where a task or actor may run: values for the option `scheduling_strategy`, with Ray's names.

Besides these there are two words: "DEFAULT", where it waits least, and "SPREAD", evenly over the nodes. Everything is
checked when the strategy is made.

>>> NodeAffinitySchedulingStrategy("00000001", soft=True)
NodeAffinitySchedulingStrategy('00000001', soft=True)
>>> NodeAffinitySchedulingStrategy("node 1", soft=True)
Traceback (most recent call last):
    ...
ValueError: 'node 1' is not the id of a node, which has eight hexadecimal digits; bireme.nodes() lists them as NodeID
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bireme.util.placement_group import PlacementGroup

__all__ = [
    "NodeAffinitySchedulingStrategy",
    "PlacementGroupSchedulingStrategy",
    "SchedulingStrategyT",
]

_NODE_ID = re.compile("[0-9a-fA-F]{8}")


class PlacementGroupSchedulingStrategy:
    """In what a placement group has reserved.

    `placement_group_bundle_index` is one of its bundles, or -1 for whichever has room. With
    `placement_group_capture_child_tasks`, what the task or actor submits without a strategy goes into the group too.
    A `placement_group` of None is no group.
    """

    __slots__ = ("placement_group", "placement_group_bundle_index", "placement_group_capture_child_tasks")

    def __init__(
        self,
        placement_group: PlacementGroup | None,
        placement_group_bundle_index: int = -1,
        placement_group_capture_child_tasks: bool | None = None,
    ) -> None:
        from bireme.util.placement_group import PlacementGroup, check_placement_group_index

        if placement_group is not None and not isinstance(placement_group, PlacementGroup):
            raise TypeError(f"placement_group must be a PlacementGroup, not a {type(placement_group).__name__}")
        check_placement_group_index(placement_group, placement_group_bundle_index)
        if placement_group_capture_child_tasks not in (None, True, False):
            given = placement_group_capture_child_tasks
            raise TypeError(f"placement_group_capture_child_tasks must be True or False, not {given!r}")
        self.placement_group = placement_group
        self.placement_group_bundle_index = placement_group_bundle_index
        self.placement_group_capture_child_tasks = placement_group_capture_child_tasks

    def as_place(self) -> tuple[Any, ...]:
        """As the extension takes it."""
        if self.placement_group is None:
            return ("DEFAULT",)
        captures = bool(self.placement_group_capture_child_tasks)
        return ("GROUP", self.placement_group.id.hex(), self.placement_group_bundle_index, captures)

    def check_resources(self, asked: dict[str, float], what: str) -> None:
        """Refuses what fits into no bundle that it may use."""
        if self.placement_group is None:
            return
        bundles, index = self.placement_group.bundle_specs, self.placement_group_bundle_index
        allowed = bundles if index < 0 else [bundles[index]]

        def fits(bundle: dict[str, float]) -> bool:
            return all(bundle.get(name, 0) >= amount for name, amount in asked.items())

        if not any(fits(bundle) for bundle in allowed):
            where = "any bundle of its placement group" if index < 0 else f"bundle {index} of its placement group"
            raise ValueError(
                f"{what} asks for {asked}, which does not fit into {where}: {allowed}; ask for less, or for larger bundles"
            )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlacementGroupSchedulingStrategy) and self.as_place() == other.as_place()

    def __hash__(self) -> int:
        return hash(self.as_place())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.placement_group!r}, {self.placement_group_bundle_index})"

    def __reduce__(self) -> tuple[Any, ...]:
        parts = (self.placement_group, self.placement_group_bundle_index, self.placement_group_capture_child_tasks)
        return (PlacementGroupSchedulingStrategy, parts)


class NodeAffinitySchedulingStrategy:
    """On one node; with `soft`, elsewhere when that node is gone or can never run it."""

    __slots__ = ("node_id", "soft")

    def __init__(
        self,
        node_id: str,
        soft: bool,
        _spill_on_unavailable: bool = False,
        _fail_on_unavailable: bool = False,
    ) -> None:
        if not isinstance(node_id, str):
            raise TypeError(f"node_id must be a string, not {node_id!r} of type {type(node_id).__name__}")
        if not _NODE_ID.fullmatch(node_id):
            raise ValueError(
                f"{node_id!r} is not the id of a node, which has eight hexadecimal digits; "
                "bireme.nodes() lists them as NodeID"
            )
        if not isinstance(soft, bool):
            raise TypeError(f"soft must be True or False, not {soft!r}")
        if _spill_on_unavailable or _fail_on_unavailable:
            from bireme.exceptions import NotSupportedError

            raise NotSupportedError("_spill_on_unavailable and _fail_on_unavailable are not supported; leave them out")
        self.node_id = node_id.lower()
        self.soft = soft

    def as_place(self) -> tuple[Any, ...]:
        """As the extension takes it."""
        return ("NODE", self.node_id, self.soft)

    def check_resources(self, asked: dict[str, float], what: str) -> None:
        """Only the node knows what it has."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NodeAffinitySchedulingStrategy) and self.as_place() == other.as_place()

    def __hash__(self) -> int:
        return hash(self.as_place())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.node_id!r}, soft={self.soft})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (NodeAffinitySchedulingStrategy, (self.node_id, self.soft))


SchedulingStrategyT = str | PlacementGroupSchedulingStrategy | NodeAffinitySchedulingStrategy | None
