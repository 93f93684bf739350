"""Learning: an actor holds the weights, tasks compute gradients on slices of data in shared memory."""

from typing import Any

import numpy as np

import bireme

Vector = np.ndarray[Any, np.dtype[np.float64]]

ROWS = 20_000
FEATURES = 10
WORKERS = 2
ROUNDS = 60
STEP = 0.5


@bireme.remote
class ParameterServer:
    def __init__(self, size: int) -> None:
        self.weights = np.zeros(size)

    def apply(self, *gradients: Vector) -> Vector:
        self.weights = self.weights - STEP * np.mean(gradients, axis=0)
        return self.weights


@bireme.remote
def gradient(weights: Vector, inputs: Vector, outputs: Vector, part: int) -> Vector:
    """Of the squared error of one part; the data are read where they lie."""
    rows = slice(part * ROWS // WORKERS, (part + 1) * ROWS // WORKERS)
    error = inputs[rows] @ weights - outputs[rows]
    result: Vector = inputs[rows].T @ error / len(error)
    return result


def main() -> None:
    random = np.random.default_rng(7)
    truth = random.normal(size=FEATURES)
    inputs = random.normal(size=(ROWS, FEATURES))
    shared_inputs, shared_outputs = bireme.put(inputs), bireme.put(inputs @ truth)
    server = ParameterServer.remote(FEATURES)
    weights: Any = np.zeros(FEATURES)
    for _ in range(ROUNDS):
        # Only references pass through here: weights and gradients go from process to process.
        gradients = [gradient.remote(weights, shared_inputs, shared_outputs, part) for part in range(WORKERS)]
        weights = server.apply.remote(*gradients)
    error = float(np.abs(bireme.get(weights) - truth).max())
    print(f"after {ROUNDS} rounds the weights are right to {error:.0e}")
    assert error < 1e-6


if __name__ == "__main__":
    main()
