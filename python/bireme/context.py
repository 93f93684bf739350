"""Starting and ending the runtime of a driver."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from typing import Any

from . import _native, _path
from ._environment import RuntimeEnvironment
from ._logs import Printer
from ._options import InitOptions

# What the zygote is told, as JSON in its environment.
ZYGOTE_VARIABLE = "BIREME_ZYGOTE"

# The first thing that a zygote of a node does: it finds the package where the program does.
_FIND = (
    f"import json, os, sys; told = json.loads(os.environ['{ZYGOTE_VARIABLE}'])['path']; "
    "sys.path[:] = told + [entry for entry in sys.path if entry not in told]; "
)
_ZYGOTE = "from bireme._zygote import main; main()"
_PROBE = "import cloudpickle; print('%d.%d' % sys.version_info[:2]); print(cloudpickle.__version__)"

_lock = threading.Lock()
_chosen = InitOptions()
_printer: Printer | None = None


def init(
    address: str | None = None,
    *,
    num_cpus: float | None = None,
    num_gpus: float | None = None,
    resources: dict[str, float] | None = None,
    object_store_memory: int | None = None,
    namespace: str | None = None,
    runtime_env: dict[str, Any] | None = None,
    log_to_driver: bool | None = None,
    logging_level: int | str | None = None,
    ignore_reinit_error: bool = False,
    preload: list[str] | None = None,
    **others: Any,
) -> "Context":
    """Starts the runtime inside this program: no daemon, no port, nothing left behind.

    With `address` the program becomes a driver of a node that runs already (`bireme start`): `"auto"` is the one on this
    machine, `"HOST:PORT"` one of several. What the machine has is the node's to say then; `shutdown` leaves it running.

    `num_cpus`, `num_gpus` and `resources` are what tasks may use at once (default: what the machine has),
    `object_store_memory` is the size of shared memory in bytes, `preload` names modules that workers find imported.
    The first use of a remote function calls this with the defaults. Options of `ray.init` that mean nothing here, such as those
    of its dashboard, are taken and do nothing.

    >>> import bireme
    >>> with bireme.init(num_cpus=2):
    ...     bireme.get(bireme.put("hello"))
    'hello'
    """
    global _chosen, _printer
    options = InitOptions(
        address=address,
        num_cpus=num_cpus,
        num_gpus=num_gpus,
        resources=resources,
        object_store_memory=object_store_memory,
        namespace=namespace,
        runtime_env=runtime_env,
        log_to_driver=log_to_driver,
        logging_level=logging_level,
        ignore_reinit_error=ignore_reinit_error,
        preload=preload,
        **others,
    )
    with _lock:
        if _native.is_running():
            if ignore_reinit_error:
                return Context()
            if _native.is_worker():
                raise RuntimeError(
                    "a task or actor has the runtime of its program: leave bireme.init() to that program, "
                    "or pass ignore_reinit_error=True"
                )
            raise RuntimeError(
                "bireme is running already: call bireme.shutdown() first, or pass ignore_reinit_error=True to go on with it"
            )
        _set_level(options.logging_level)
        _start(options)
        if options.log_to_driver:
            _printer = Printer()
        _chosen = options
    return Context()


def _set_level(level: int) -> None:
    import logging

    logging.getLogger("bireme").setLevel(level)


def _start(options: InitOptions) -> None:
    # Here, since a program that only imports the package needs none of them.
    import json
    import secrets
    import tempfile

    settings: dict[str, Any] = {
        "address": options.address,
        "num_cpus": options.num_cpus,
        "num_gpus": options.num_gpus,
        "memory": options.memory,
        "resources": dict(options.resources),
        "object_store_memory": options.object_store_memory,
        "namespace": options.namespace,
        "log_to_driver": options.log_to_driver,
    }
    # What the program has imported already its workers will need too.
    modules = list(options.preload)
    temporary = options.temp_dir or tempfile.gettempdir()
    scratch = os.path.join(temporary, f"bireme-{os.getpid()}-{secrets.token_hex(4)}")
    if "numpy" in sys.modules:
        modules.insert(0, "numpy")
    told = {
        "path": _path.begin(),
        "preload": modules,
    }
    if options.address is not None:
        settings["python"] = _described(json.dumps(told))
        _native.start(settings, [], scratch)
        return
    os.environ[ZYGOTE_VARIABLE] = json.dumps(told)
    try:
        _native.start(settings, [sys.executable, *_flags(), "-c", _ZYGOTE], scratch)
    finally:
        del os.environ[ZYGOTE_VARIABLE]


def _described(told: str) -> tuple[str, str, str, list[str], list[str], list[tuple[str, str]]]:
    """What the workers of this program are, for a node that starts them with an interpreter of its own."""
    import cloudpickle  # type: ignore[import-untyped]

    return (
        "%d.%d" % sys.version_info[:2],
        str(cloudpickle.__version__),
        sys.executable,
        [*_flags(), "-c", _FIND + _ZYGOTE],
        ["-c", _FIND + _PROBE],
        [(ZYGOTE_VARIABLE, told)],
    )


def _flags() -> list[str]:
    """What makes another Python run like this one."""
    flags = ["-X", "frozen_modules=on"] if "frozen_modules" not in sys._xoptions else []
    for option, value in sys._xoptions.items():
        flags += ["-X", option if value is True else f"{option}={value}"]
    if sys.flags.no_site:
        flags.append("-S")
    if sys.flags.optimize:
        flags.append("-" + "O" * sys.flags.optimize)
    if sys.flags.isolated:
        flags.append("-I")
    if sys.flags.dont_write_bytecode:
        flags.append("-B")
    return flags


class Context:
    """The running runtime; as a context manager it shuts down at the end, unless that has ended before."""

    def __init__(self) -> None:
        self._job = _native.job_id()

    def __enter__(self) -> "Context":
        return self

    def __exit__(self, *unused: object) -> None:
        _end(self._job)

    def disconnect(self) -> None:
        """Shuts the runtime down, if it is this one that runs."""
        _end(self._job)

    @property
    def address_info(self) -> dict[str, Any]:
        """Where the runtime is: in this process, or the node that was asked for."""
        return {"address": _chosen.address or "local", "node_id": node_id()}

    @property
    def dashboard_url(self) -> None:
        """There is no dashboard."""

    def __getitem__(self, name: str) -> Any:
        return self.address_info[name]

    def __repr__(self) -> str:
        return f"Context({', '.join(f'{name}={value}' for name, value in self._facts().items())})"

    def _repr_html_(self) -> str:
        from html import escape

        cells = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th><td style='text-align:left'>{escape(value)}</td></tr>"
            for name, value in self._facts().items()
        )
        return f"<b>Bireme</b><table>{cells}</table>"

    def _facts(self) -> dict[str, str]:
        """For people: where the runtime is, and how large."""
        facts = {"state": "ended"}
        if _native.is_running() and _native.job_id() == self._job:
            alive = [row for row in _native.nodes() if row["alive"]]
            cpus = sum(row["total"].get("CPU", 0.0) for row in alive)
            facts = {"address": _chosen.address or "local", "nodes": str(len(alive)), "CPUs": f"{cpus:g}"}
        return {**facts, "bireme": _native.__version__, "Python": "%d.%d.%d" % sys.version_info[:3]}


def auto_init() -> None:
    """Starts the runtime with the defaults; called by the first use."""
    init(ignore_reinit_error=True)


def shutdown() -> None:
    """Ends the runtime and all its processes. Does nothing when there is none."""
    _end(None)


def _end(job: str | None) -> None:
    """Ends the runtime if it is that of the job, or whichever it is."""
    global _printer
    with _lock:
        if job is not None and not (_native.is_running() and _native.job_id() == job):
            return
        _native.shutdown()
        futures = sys.modules.get("bireme._futures")
        if futures is not None:
            futures.end()
        if _printer is not None:
            _printer.finish()
            _printer = None


def is_initialized() -> bool:
    """Whether the runtime runs."""
    return _native.is_running()


def namespace() -> str:
    """The namespace of this program's actors; empty when none was chosen and the program shares its node with nobody."""
    return _native.namespace()


def environment_for(chosen: RuntimeEnvironment | None) -> tuple[int, bytes | None] | None:
    """The key of the environment that a task gets, and what to publish under it; None for the plain one."""
    import pickle

    from . import _worker

    key, inherited = _worker.environment()
    if chosen is None and key:
        return key, None
    environment = chosen if _chosen.runtime_env is None else (chosen or RuntimeEnvironment()).over(_chosen.runtime_env)
    if not environment:
        return None
    packed = environment.pack().over(inherited)
    return int(packed.key[:15], 16) + 1, pickle.dumps(packed, protocol=5)


def node_id() -> str:
    """The id of the node, as text."""
    return _native.node_id()


atexit.register(shutdown)
