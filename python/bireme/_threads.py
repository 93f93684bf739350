"""How many threads libraries of linear algebra start in a worker: as many as its task or actor has CPUs, as in Ray.

Such libraries read environment variables when they are imported. A variable that the user has set, in the program's environment or
in `runtime_env`, stays as it is.
"""

from __future__ import annotations

import os
from collections.abc import Container

VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

# Which of them the zygote has set, for workers that are started anew: those get its environment.
_OURS = "BIREME_THREAD_VARIABLES"
# In a worker: those variables, and what they were set to last.
_chosen: dict[str, str] = {}


def limit() -> None:
    """In the zygote: one thread, so that what is imported there starts none. A process with threads cannot be copied."""
    if _OURS not in os.environ:
        os.environ[_OURS] = ",".join(name for name in VARIABLES if name not in os.environ)
    for name in VARIABLES:
        os.environ.setdefault(name, "1")


def begin() -> None:
    """In a new worker: remembers which variables are ours to set."""
    for name in os.environ.pop(_OURS, "").split(","):
        if name:
            _chosen[name] = os.environ.get(name, "1")


def follow(cpus: float, kept: Container[str]) -> None:
    """Sets the variables for a task or actor with so many CPUs, except those that are kept or that the user's code has set."""
    threads = str(max(1, int(cpus)))
    for name, last in _chosen.items():
        if last != threads and name not in kept and os.environ.get(name) == last:
            os.environ[name] = _chosen[name] = threads
