"""The process that workers are copies of: it imports what they need, once, and then becomes the keeper."""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys

from . import _threads


def main() -> None:
    """Imports the package and what the user asked for, and keeps workers until the node is gone."""
    # It stays in the environment: a worker that cannot be a copy of this process is started anew and is told the same.
    told = json.loads(os.environ.get("BIREME_ZYGOTE", "{}"))
    _threads.limit()
    sys.path[:] = told.get("path", sys.path)
    sys.argv = [""]
    from . import _native, _path, _worker, context  # noqa: F401 - workers start with it

    _path.begin()

    for name in told.get("preload", ()):
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 - the task that needs it says so
            print(f"bireme: cannot preload {name}: {error}", file=sys.stderr)

    # What exists now is shared with every worker: the collector must not touch it.
    gc.collect()
    gc.freeze()
    _native.keep()
