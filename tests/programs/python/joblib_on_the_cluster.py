"""A grid search of scikit-learn on the cluster, through joblib, finds what it finds alone."""
# expect: the same: True
# expect: [0, 1, 4, 9]

import sys

import joblib
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

import bireme
from bireme.util.joblib import register_bireme

bireme.init(*sys.argv[1:])
register_bireme()

features, classes = load_iris(return_X_y=True)
search = GridSearchCV(SVC(), {"C": [0.1, 1, 10], "kernel": ["linear", "rbf"]}, cv=3, n_jobs=-1)
with joblib.parallel_backend("sequential"):
    alone = search.fit(features, classes).best_params_
with joblib.parallel_backend("bireme"):
    print("the same:", search.fit(features, classes).best_params_ == alone)
    print(joblib.Parallel()(joblib.delayed(pow)(n, 2) for n in range(4)))
