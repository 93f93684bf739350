"""Another extension in the place of `bireme._native`: one that carries remote functions of Rust as well.

The package loads it when the environment variable ``BIREME_NATIVE`` names its file, in the driver and, since workers
inherit the variable, in every worker. Such an extension fills its module with `_native::fill` of the crate `bireme-py`.
"""

from __future__ import annotations

import os
import sys

VARIABLE = "BIREME_NATIVE"


def load() -> None:
    """Makes the extension that the variable names the one of this package, if it names one."""
    path = os.environ.get(VARIABLE)
    if not path or "bireme._native" in sys.modules:
        return
    # Only here: most programs never come this far.
    import importlib.machinery
    import importlib.util

    # The file of a module `scale` is `scale.so`, `libscale.so` or has a tag for the interpreter in its name.
    name = os.path.basename(path).partition(".")[0].removeprefix("lib")
    loader = importlib.machinery.ExtensionFileLoader(name, os.path.abspath(path))
    spec = importlib.util.spec_from_file_location(name, os.path.abspath(path), loader=loader)
    if spec is None or not os.path.exists(path):
        raise ImportError(f"{VARIABLE} names {path}, which is no extension")
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    # Under its own name too: pickles refer to functions by the module that made them.
    sys.modules[name] = sys.modules["bireme._native"] = module
