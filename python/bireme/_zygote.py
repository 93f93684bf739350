"""The process that workers are copies of: it imports what they need, once, and then becomes the keeper."""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys


def main() -> None:
    """Imports the package and what the user asked for, and keeps workers until the node is gone."""
    # It stays in the environment: a worker that cannot be a copy of this process is started anew and is told the same.
    told = json.loads(os.environ.get("BIREME_ZYGOTE", "{}"))
    # Libraries of linear algebra start threads when they are imported, and a process with threads cannot be copied. A
    # task has one CPU unless it asked for more, so its worker needs no more than one such thread, as in Ray.
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    sys.path[:] = told.get("path", sys.path)
    sys.argv = [""]
    from . import _native, _worker, context  # noqa: F401 - workers start with it

    for name in told.get("preload", ()):
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 - the task that needs it says so
            print(f"bireme: cannot preload {name}: {error}", file=sys.stderr)

    # What exists now is shared with every worker: the collector must not touch it.
    gc.collect()
    gc.freeze()
    _native.keep()
