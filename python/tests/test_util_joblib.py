"""joblib and scikit-learn on the cluster: `bireme.util.joblib`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import bireme
from bireme.util.joblib import register_bireme

joblib: Any = pytest.importorskip("joblib")


@pytest.fixture(autouse=True)
def runtime() -> Iterator[None]:
    bireme.init(num_cpus=2)
    register_bireme()
    yield
    bireme.shutdown()


class OwnError(Exception):
    pass


def place_of(number: int) -> tuple[int, str | None]:
    return number, bireme.get_runtime_context().get_task_id()


def fail_at(number: int) -> int:
    if number == 3:
        raise OwnError(number)
    return number


def memory_of(array: Any, number: int) -> tuple[bool, float]:
    return array.flags.writeable, float(array[number])


def test_calls_run_as_tasks_in_order() -> None:
    with joblib.parallel_backend("bireme"):
        placed = joblib.Parallel(n_jobs=2)(joblib.delayed(place_of)(n) for n in range(30))
    assert [number for number, _ in placed] == list(range(30))
    assert all(task is not None for _, task in placed)


def test_the_jobs_are_the_cpus_of_the_cluster() -> None:
    with joblib.parallel_config(backend="bireme"):
        assert joblib.effective_n_jobs(-1) == 2
        assert joblib.effective_n_jobs(-2) == 1
        assert joblib.effective_n_jobs(7) == 7
        assert joblib.Parallel()(joblib.delayed(pow)(n, 2) for n in range(4)) == [0, 1, 4, 9]


def test_options_are_those_of_the_tasks() -> None:
    with joblib.parallel_backend("bireme", ray_remote_args={"num_cpus": 2}):
        (held,) = joblib.Parallel(n_jobs=1 + 1)([joblib.delayed(assigned)()])
    assert held == {"CPU": 2.0}


def assigned() -> dict[str, float]:
    return bireme.get_runtime_context().get_assigned_resources()


def test_errors_have_their_type_and_the_backend_goes_on() -> None:
    with joblib.parallel_backend("bireme"):
        with pytest.raises(OwnError) as caught:
            joblib.Parallel(n_jobs=2)(joblib.delayed(fail_at)(n) for n in range(10))
        assert type(caught.value) is OwnError and caught.value.args == (3,)
        assert joblib.Parallel(n_jobs=2)(joblib.delayed(fail_at)(n) for n in range(3)) == [0, 1, 2]


def test_large_arguments_are_stored_once() -> None:
    numpy: Any = pytest.importorskip("numpy")
    array = numpy.arange(1_000_000, dtype=numpy.float64)
    before = bireme.state()["counts"]["puts"]
    with joblib.parallel_backend("bireme"):
        seen = joblib.Parallel(n_jobs=2, batch_size=1)(joblib.delayed(memory_of)(array, n) for n in range(20))
    assert seen == [(False, float(n)) for n in range(20)]
    assert bireme.state()["counts"]["puts"] - before == 1


def test_results_come_as_a_generator() -> None:
    with joblib.parallel_backend("bireme"):
        results = joblib.Parallel(n_jobs=2, return_as="generator")(joblib.delayed(pow)(n, 2) for n in range(20))
        assert list(results) == [n**2 for n in range(20)]


@pytest.mark.filterwarnings("ignore")
def test_a_search_of_scikit_learn_finds_the_same() -> None:
    pytest.importorskip("sklearn")
    from sklearn.datasets import load_iris  # type: ignore[import-untyped]
    from sklearn.model_selection import GridSearchCV  # type: ignore[import-untyped]
    from sklearn.svm import SVC  # type: ignore[import-untyped]

    features, classes = load_iris(return_X_y=True)
    search = GridSearchCV(SVC(), {"C": [0.1, 1, 10], "kernel": ["linear", "rbf"]}, cv=3)
    alone = search.fit(features, classes).best_params_
    with joblib.parallel_backend("bireme"):
        assert search.set_params(n_jobs=-1).fit(features, classes).best_params_ == alone
    assert any(task["name"] == "_run" for task in bireme.state()["tasks"])


def test_without_joblib_the_error_says_what_to_install(program: Any) -> None:
    output, _ = program.run(
        source="""
        import sys
        sys.modules["joblib"] = None
        import bireme.util.joblib
        try:
            bireme.util.joblib.register_bireme()
        except ImportError as error:
            print(error)
        """
    )
    assert "pip install joblib" in output

