"""joblib, and scikit-learn with it, on the cluster. joblib is needed only where this is used.

>>> import bireme, joblib
>>> from bireme.util.joblib import register_bireme
>>> register_bireme()
>>> with joblib.parallel_backend("bireme"):
...     joblib.Parallel()(joblib.delayed(pow)(n, 2) for n in range(4))
[0, 1, 4, 9]
>>> bireme.shutdown()
"""

from __future__ import annotations

__all__ = ["register_bireme"]


def register_bireme() -> None:
    """Registers the joblib backend `"bireme"`: `with joblib.parallel_backend("bireme"):` runs batches as tasks.

    `n_jobs` is how many run at once, -1 for the CPUs of the cluster. `ray_remote_args={"num_cpus": 2}` of `parallel_backend`
    are options of the tasks.
    """
    try:
        import joblib  # type: ignore[import-untyped]
    except ImportError as error:
        raise ImportError("register_bireme needs joblib: install it with `pip install joblib`") from error
    from bireme.util._joblib_backend import BiremeBackend

    joblib.register_parallel_backend("bireme", BiremeBackend)
