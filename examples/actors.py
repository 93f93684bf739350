"""Actors: state in a process of its own, a name to find it by, handles that tasks can use."""

from typing import Any

import bireme
from bireme.exceptions import ActorDiedError


@bireme.remote
class Scores:
    """Scores of players."""

    def __init__(self) -> None:
        self.scores: dict[str, int] = {}

    def add(self, player: str, points: int) -> int:
        self.scores[player] = self.scores.get(player, 0) + points
        return self.scores[player]

    def best(self) -> tuple[str, int]:
        if not self.scores:
            raise LookupError("nobody has played yet")
        return max(self.scores.items(), key=lambda item: item[1])


@bireme.remote
def play(scores: Any, player: str, rounds: int) -> int:
    """Plays in another process, and reports to the actor from there."""
    last = 0
    for points in range(1, rounds + 1):
        last = bireme.get(scores.add.remote(player, points))
    return last


def main() -> None:
    scores = Scores.options(name="scores").remote()
    try:
        bireme.get(scores.best.remote())
    except LookupError as error:
        print("before the first game:", str(error).splitlines()[-1])
    games = [play.remote(scores, "ada", 10), play.remote(scores, "grace", 7)]
    assert bireme.get(games) == [55, 28]
    best = bireme.get(bireme.get_actor("scores").best.remote())
    print("the best player:", best)
    assert best == ("ada", 55)
    bireme.kill(scores)
    try:
        bireme.get(scores.best.remote())
    except ActorDiedError as error:
        print("after the end:", error)
    else:
        raise AssertionError("a killed actor answers nothing")


if __name__ == "__main__":
    main()
