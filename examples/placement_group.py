"""Placement groups: resources that are reserved together, so that all of a gang run at the same time or none."""

import bireme
from bireme.exceptions import PlacementGroupUnschedulableError, TaskPlacementGroupRemoved
from bireme.util.placement_group import get_placement_group, placement_group, remove_placement_group
from bireme.util.scheduling_strategies import PlacementGroupSchedulingStrategy


@bireme.remote(num_cpus=1)
class Trainer:
    """A member of a gang, which is of use only when the others run too."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def step(self, weights: float) -> float:
        return weights + self.rank


@bireme.remote
def evaluate(weights: float) -> float:
    return weights / 2


def main() -> None:
    bireme.init(num_cpus=4)
    print("nodes:", [node["NodeID"] for node in bireme.nodes()])

    group = placement_group([{"CPU": 1}] * 3, strategy="PACK", name="trainers")
    bireme.get(group.ready())
    print("reserved; free:", bireme.available_resources()["CPU"], "CPUs")
    assert bireme.available_resources()["CPU"] == 1

    trainers = []
    for rank in range(3):
        strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank)
        trainers.append(Trainer.options(scheduling_strategy=strategy).remote(rank))
    assert bireme.get([trainer.step.remote(1.0) for trainer in trainers]) == [1.0, 2.0, 3.0]
    assert bireme.get(evaluate.remote(3.0)) == 1.5

    # What can never be placed is an error at once.
    try:
        placement_group([{"CPU": 64}]).wait(20)
    except PlacementGroupUnschedulableError as error:
        print("refused:", error)
    else:
        raise AssertionError("there are not so many CPUs")

    # What runs in a group is ended with it, and what is to run there fails.
    remove_placement_group(get_placement_group("trainers"))
    inside = evaluate.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group))
    try:
        bireme.get(inside.remote(3.0))
    except TaskPlacementGroupRemoved as error:
        print("after the removal:", error)
    else:
        raise AssertionError("its group is gone")


if __name__ == "__main__":
    main()
