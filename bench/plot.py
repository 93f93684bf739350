"""Draws the figures of `bireme bench --collectives --plot DIR` from the CSV files in DIR, as PNG beside them."""

import csv
import sys
from collections import defaultdict
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (the backend has to be chosen before)

# What was measured has markers; what is on paper is a thin line. One colour for each system in all plots.
MEASURED = {"bireme": "C0", "MPICH": "black", "TCP": "C1"}
OTHERS = ("C2", "C3", "C4", "C5", "C6", "C8")
# Ours with a part left out.
ABLATIONS = ("no ", "always ")


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def lines_of(rows: list[dict[str, str]], key: str) -> dict[str, list[tuple[float, float]]]:
    lines = defaultdict(list)
    for row in rows:
        lines[row["system"]].append((float(row[key]), float(row["ms"])))
    return {system: sorted(points) for system, points in lines.items()}


def draw(axes, rows: list[dict[str, str]], key: str) -> None:
    others = iter(OTHERS)
    for system, points in lines_of(rows, key).items():
        at, took = zip(*points, strict=True)
        if system in MEASURED:
            style = {"marker": "o", "color": MEASURED[system]}
        elif system.startswith(ABLATIONS):
            style = {"marker": "x", "linestyle": "--", "color": next(others)}
        else:
            style = {"linestyle": ":", "color": next(others)}
        axes.plot(at, took, label=system, linewidth=2 if system == "bireme" else 1, **style)
    axes.legend(fontsize=7)
    axes.grid(visible=True, alpha=0.3)


def by_size(rows: list[dict[str, str]], path: Path, title: str) -> None:
    """One plot for each operation and number of nodes, over the size."""
    operations = list(dict.fromkeys(row["operation"] for row in rows))
    nodes = sorted({int(row["nodes"]) for row in rows})
    figure, grid = plt.subplots(
        len(operations), len(nodes), squeeze=False, figsize=(4.5 * len(nodes), 3.4 * len(operations))
    )
    for line, operation in zip(grid, operations, strict=True):
        for axes, count in zip(line, nodes, strict=True):
            draw(axes, [row for row in rows if row["operation"] == operation and int(row["nodes"]) == count], "bytes")
            axes.set(xscale="log", yscale="log", xlabel="bytes", ylabel="ms", title=f"{operation}, {count} nodes")
    save(figure, path, title)


def by_arrival(rows: list[dict[str, str]], path: Path, title: str) -> None:
    """One plot for each operation, over how far arrivals are spread."""
    operations = list(dict.fromkeys(row["operation"] for row in rows))
    figure, grid = plt.subplots(1, len(operations), squeeze=False, figsize=(5 * len(operations), 3.6))
    for axes, operation in zip(grid[0], operations, strict=True):
        of_operation = [row for row in rows if row["operation"] == operation]
        draw(axes, of_operation, "spread")
        axes.set(xlabel="arrivals spread over (S/B)", ylabel="ms after the last arrival")
        longest = max(float(row["ms"]) for row in of_operation)
        axes.set(title=f"{operation}, {of_operation[0]['nodes']} nodes", ylim=(0, 1.2 * longest))
    save(figure, path, title)


def save(figure, path: Path, title: str) -> None:
    figure.suptitle(title, y=0.995)
    figure.tight_layout(rect=(0, 0, 1, 0.98))
    figure.savefig(path, dpi=110)
    print(path)


def main() -> None:
    folder = Path(sys.argv[1])
    by_size(read(folder / "figure5.csv"), folder / "figure5.png", "A value to another node and back")
    by_size(read(folder / "figure6.csv"), folder / "figure6.png", "Collective operations")
    by_arrival(read(folder / "figure7.csv"), folder / "figure7.png", "Participants that come one by one")


if __name__ == "__main__":
    main()
