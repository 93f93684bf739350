"""What runs in worker processes around the user's code."""

from __future__ import annotations

import faulthandler
import inspect
import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from . import _native, _threads, _title
from ._current import current
from ._environment import PackedEnvironment
from ._logs import flush, name_output

# The environment that this process has entered, and its key; 0 before.
_environment: PackedEnvironment | None = None
_environment_key = 0


class ActorExit(BaseException):
    """Unwinds the method that ends its actor; never seen by callers."""


def prepare() -> None:
    """Makes a copy of the zygote a worker of its own."""
    os.environ.pop("BIREME_KEEPER", None)
    os.environ.pop("BIREME_ZYGOTE", None)
    _threads.begin()
    # Whatever kills this process leaves its Python stack in the report of its death.
    faulthandler.enable(file=2, all_threads=False)
    _reseed()
    signal.signal(signal.SIGINT, _on_interrupt)
    name_output()


def _reseed() -> None:
    """Copies must not share a sequence of random numbers. jax has none: its keys are made by the program."""
    seeders: dict[str, Callable[[Any], Any]] = {
        "random": lambda module: module.seed(),
        "numpy.random": lambda module: module.seed(),
        "torch": lambda module: module.seed(),
        # A new generator is made from the system's randomness when one is asked for; to ask here would start threads.
        "tensorflow.python.ops.stateful_random_ops": lambda module: setattr(module, "global_generator", None),
    }
    for name, seed in seeders.items():
        module = sys.modules.get(name)
        if module is None:
            continue
        try:
            seed(module)
        except Exception as error:  # noqa: BLE001 - another version of the library; tasks that use no chance can run
            print(f"bireme: the random numbers of {name} were not seeded anew: {error}", file=sys.stderr)


def _on_interrupt(number: int, frame: Any) -> None:
    """Raises in the tasks that were cancelled."""
    mine, on_loop = _native.interrupt_cancelled()
    if on_loop:
        from . import _loop

        _loop.cancel(on_loop)
    if mine:
        raise KeyboardInterrupt("the task was cancelled")


def enter_environment(key: int, contents: bytes) -> None:
    """Makes this process run in an environment; called before the first task of it."""
    global _environment, _environment_key
    from .exceptions import RuntimeEnvSetupError

    packed: PackedEnvironment = pickle.loads(contents)
    try:
        scratch = os.environ["BIREME_SCRATCH"]
        os.makedirs(scratch, mode=0o700, exist_ok=True)
        packed.apply(scratch)
    except Exception as error:
        raise RuntimeEnvSetupError(f"the runtime environment could not be set up: {error}") from error
    _environment, _environment_key = packed, key


def begin_work(name: str, cpus: float) -> None:
    """Called before a task or an actor that is another than the last one here: shows it in `ps`, and tells libraries how many
    threads they may use.
    """
    _title.show(name)
    _threads.follow(cpus, () if _environment is None else _environment.env_vars)


def environment() -> tuple[int, PackedEnvironment | None]:
    """The environment that this process has entered, by key and itself; 0 and None for none."""
    return _environment_key, _environment


# What CUDA sees when no GPU was asked for, while one is; a list for what was there.
_visible_before: list[str | None] = []
_VISIBLE = "CUDA_VISIBLE_DEVICES"


def show_gpus(indices: list[int]) -> None:
    """Makes these GPUs those that CUDA sees. Indices count within what the program itself may see."""
    before = os.environ.get(_VISIBLE)
    if not _visible_before:
        _visible_before.append(before)
    seen = _visible_before[0]
    names = [] if seen is None else [name.strip() for name in seen.split(",") if name.strip()]
    os.environ[_VISIBLE] = ",".join(names[index] if index < len(names) else str(index) for index in indices)


def hide_gpus() -> None:
    """Leaves the variable as it was before the task."""
    before = _visible_before.pop()
    if before is None:
        os.environ.pop(_VISIBLE, None)
    else:
        os.environ[_VISIBLE] = before


def construct(cls: type, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> tuple[Any, bool]:
    """Makes the actor of this process, and says whether its calls run on an event loop."""
    from .actor import is_async

    if not is_async(cls):
        return cls(*args, **(kwargs or {})), False
    from . import _loop

    async def on_the_loop() -> Any:
        return cls(*args, **(kwargs or {}))

    _loop.start()
    return _loop.run_here(on_the_loop()), True


def end_fork(error: BaseException | None) -> NoReturn:
    """Ends a copy of this worker, made by `os.fork` in a task, that has come to the end of the task: only the original gives a
    result. Its exit code is that of a program that ends so.
    """
    code: Any = 0
    if isinstance(error, SystemExit):
        code = error.code
        if not isinstance(code, int | None):
            print(code, file=sys.stderr)
            code = 1
    elif error is not None:
        traceback.print_exception(error)
        code = 1
    try:
        flush()
    finally:
        os._exit((code or 0) & 0xFF)


def call_special(actor: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
    """Methods that every actor has."""
    name = name.removeprefix("__ray_").removeprefix("__bireme_")
    if name == "ready__":
        return True
    if name == "terminate__":
        leave()
    if name == "call__":
        function, *rest = args
        return function(actor, *rest, **(kwargs or {}))
    raise AttributeError(f"actors have no method {name}")


def leave() -> NoReturn:
    """Ends the actor of this process after the running call."""
    found = current()
    if found is None or found[2] is None:
        raise RuntimeError("exit_actor ends the actor that calls it, and this code is not in a method of an actor")
    raise ActorExit


def before_exit(actor: Any) -> None:
    """What the user's code may still do when its process ends in good order; `actor` is None in a worker for tasks."""
    import atexit

    for name in ("__ray_shutdown__", "__bireme_shutdown__"):
        hook = getattr(actor, name, None)
        if hook is not None:
            try:
                result = hook()
                if inspect.isawaitable(result):
                    from . import _loop

                    _loop.finish(result)
            except BaseException:  # noqa: BLE001 - the process ends in any case
                traceback.print_exc()
    # As at the end of the interpreter, pools of threads and processes end first. A second run finds none of either.
    handlers: list[Any] = getattr(threading, "_threading_atexits", [])
    while handlers:
        try:
            handlers.pop()()
        except BaseException:  # noqa: BLE001 - the process ends in any case
            traceback.print_exc()
    atexit._run_exitfuncs()
    flush()
