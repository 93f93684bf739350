"""Which machines of a cluster do the work: `python examples/cluster.py HOST:PORT`, or without an address this one alone."""

import sys

import numpy as np

import bireme

bireme.init(address=sys.argv[1] if len(sys.argv) > 1 else None)


@bireme.remote(scheduling_strategy="SPREAD")
def column(seed: int) -> np.ndarray:
    return np.full(1_000_000, seed, dtype=np.float64)


@bireme.remote
def total(values: np.ndarray) -> tuple[str, float]:
    return bireme.get_runtime_context().get_node_id(), float(values.sum())


# A column stays where it was made, and its total is taken there.
columns = [column.remote(seed) for seed in range(8)]
totals = bireme.get([total.remote(values) for values in columns])
assert [value for _, value in totals] == [seed * 1_000_000.0 for seed in range(8)]
for node in sorted({node for node, _ in totals}):
    print(f"node {node} took {sum(1 for other, _ in totals if other == node)} of 8 totals")
