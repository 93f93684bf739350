"""Objects: one array in shared memory, read by many tasks without a copy."""

from typing import Any

import numpy as np

import bireme

ROWS = 1_000
COLUMNS = 500

Matrix = np.ndarray[Any, np.dtype[np.float64]]


@bireme.remote
def sum_rows(matrix: Matrix, start: int, end: int) -> float:
    """The sum of some rows, read where they lie."""
    return float(matrix[start:end].sum())


@bireme.remote
def doubled(matrix: Matrix) -> Matrix:
    """A large result: its elements go straight into shared memory."""
    return matrix * 2


def main() -> None:
    matrix = np.repeat(np.arange(ROWS, dtype=np.float64), COLUMNS).reshape(ROWS, COLUMNS)
    shared = bireme.put(matrix)
    parts = [sum_rows.remote(shared, part * 100, (part + 1) * 100) for part in range(10)]
    total = sum(bireme.get(parts))
    print(f"ten tasks summed a {ROWS} x {COLUMNS} array in shared memory: {total:.0f}")
    assert total == matrix.sum()
    twice = bireme.get(doubled.remote(shared))
    assert twice.sum() == 2 * total
    # What others read too cannot be changed; a copy can.
    assert not twice.flags.writeable
    assert bireme.get(shared, copy=True).flags.writeable


if __name__ == "__main__":
    main()
