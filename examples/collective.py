"""Collective groups: actors that train a model together, each on data of its own."""

import numpy

import bireme
from bireme.collective import Group
from bireme.exceptions import CollectiveMismatchError


@bireme.remote(num_cpus=1)
class Trainer:
    """Learns the slope of a line from points that only it has."""

    def __init__(self, points: numpy.ndarray) -> None:
        self.x, self.y = points
        self.slope = 0.0

    def train(self, group: Group, steps: int) -> float:
        """Takes steps down the gradient of all points, though nobody has them all."""
        for _ in range(steps):
            gradient = numpy.mean(2 * self.x * (self.slope * self.x - self.y))
            self.slope -= 0.05 * float(group.all_reduce(numpy.array([gradient]), op="mean")[0])
        return self.slope

    def overlap(self, group: Group) -> int:
        """Sums large arrays while it computes something else."""
        work = group.all_reduce(numpy.full(1_000_000, group.rank, dtype="int32"), async_op=True)
        squares = sum(n * n for n in range(1000))
        assert squares == 332_833_500
        return int(work.wait()[0])

    def disagree(self, group: Group) -> str:
        try:
            group.all_reduce(numpy.zeros(3 + group.rank))
        except CollectiveMismatchError as error:
            return str(error)
        raise AssertionError("the shapes are different")


@bireme.remote
def neighbour(group: Group, rank: int) -> int:
    """One of several tasks that take their ranks themselves."""
    with group.join(rank) as member:
        member.send(numpy.array([rank]), to=(rank + 1) % member.world_size)
        return int(member.recv(from_=(rank - 1) % member.world_size)[0])


def main() -> None:
    # Three trainers, and three tasks that have to run at once.
    bireme.init(num_cpus=6)
    xs = [numpy.arange(1, 5) / 2 + rank / 10 for rank in range(3)]
    trainers = [Trainer.remote(numpy.stack([x, 3 * x])) for x in xs]
    group = Group(trainers)
    slopes = bireme.get([trainer.train.remote(group, 60) for trainer in trainers])
    print("slopes:", [round(slope, 4) for slope in slopes])
    assert all(abs(slope - 3) < 1e-3 for slope in slopes)
    assert bireme.get([trainer.overlap.remote(group) for trainer in trainers]) == [3, 3, 3]
    print(bireme.get([trainer.disagree.remote(group) for trainer in trainers])[0])

    ring = Group(world_size=3)
    assert bireme.get([neighbour.remote(ring, rank) for rank in range(3)]) == [2, 0, 1]


if __name__ == "__main__":
    main()
