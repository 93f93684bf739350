"""Hyper-parameter search with scikit-learn: the best of a grid, the same as one process finds."""
# expect: 12 models, the best is C=10.0 gamma=0.0001
# expect: the scores are those of one process

import sys

from sklearn.datasets import load_digits
from sklearn.model_selection import ParameterGrid, cross_val_score
from sklearn.svm import SVC

import bireme

bireme.init(*sys.argv[1:])
images, labels = load_digits(return_X_y=True)
images, labels = images[:600], labels[:600]
data = bireme.put((images, labels))
grid = list(ParameterGrid({"C": [0.1, 1.0, 10.0], "gamma": [0.0001, 0.001, 0.01, 0.1]}))


def score(parameters, data):
    return float(cross_val_score(SVC(**parameters), *data, cv=3).mean())


remote_score = bireme.remote(score)
scores = bireme.get([remote_score.remote(parameters, data) for parameters in grid])
best = grid[max(range(len(grid)), key=scores.__getitem__)]
print(f"{len(grid)} models, the best is C={best['C']} gamma={best['gamma']}")
assert scores == [score(parameters, (images, labels)) for parameters in grid]
print("the scores are those of one process")
