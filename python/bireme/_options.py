"""What the user chose for a task, an actor, a method or the runtime: checked once, then passed around as a value.

Made by the decorators, by `.options()` and by `init`. The names are Ray's. `None` means the default. Values are checked
where they are given, so that an error is at the user's line; a wrong name is answered with the nearest right one.

An actor holds what it asked for as long as it lives. By default it holds no CPU, so that more actors than cores can
live at once.

>>> base = TaskOptions.parse({"num_cpus": 2})
>>> base.merge(name="resize").num_cpus
2.0
>>> try:
...     TaskOptions.parse({"num_cpu": 2})
... except ValueError as error:
...     print(str(error).split("?")[0])
a task has no option 'num_cpu'; did you mean 'num_cpus'
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NoReturn, Self

from bireme import _option_checks as checks
from bireme._environment import RuntimeEnvironment
from bireme._traceback import type_name_of

__all__ = ["ActorOptions", "InitOptions", "MethodOptions", "TaskOptions"]

# As in Ray, and as the engine's own default.
RETRIES_DEFAULT = 3
# Calls of an async actor that may run at once when the user does not say otherwise.
ASYNC_CONCURRENCY_DEFAULT = 1000

_NO_RESOURCES: Mapping[str, float] = MappingProxyType({})


class _Options:
    """A value with one attribute per option. Not changed after it was made."""

    _what: ClassVar[str]
    _checks: ClassVar[Mapping[str, checks.Check]]
    _defaults: ClassVar[Mapping[str, Any]]
    # Ray's private names for options that have a public name here.
    _aliases: ClassVar[Mapping[str, str]] = {}

    def __init__(self, **options: Any) -> None:
        self.__dict__.update(self._defaults)
        self._take(options)

    @classmethod
    def parse(cls, options: Mapping[str, Any]) -> Self:
        """The options with these names and values."""
        return cls(**options)

    def merge(self, **overrides: Any) -> Self:
        """A copy with some options chosen anew."""
        merged = object.__new__(type(self))
        merged.__dict__.update(self.__dict__)
        merged._take(overrides)
        return merged

    def _take(self, options: Mapping[str, Any]) -> None:
        mine, known = self.__dict__, self._checks
        for name, value in options.items():
            check = known.get(name)
            if check is None:
                self._refuse(name)
            target = self._aliases.get(name, name)
            if value is None:
                if target in self._defaults:
                    mine[target] = self._defaults[target]
                continue
            checked = check(name, value)
            if target in self._defaults:
                mine[target] = checked
        self._agree()

    def _agree(self) -> None:
        """Checks what only several options together can break."""

    @classmethod
    def _refuse(cls, name: str) -> NoReturn:
        # Here, since most programs never need it.
        from difflib import get_close_matches

        names = sorted(each for each in cls._defaults if not each.startswith("_"))
        taken = sorted({*names, *(each for each in cls._checks if not each.startswith("_"))})
        text = f"{cls._what} has no option {name!r}"
        others = [
            kind
            for kind in (TaskOptions, ActorOptions, MethodOptions, InitOptions)
            if name in kind._defaults and kind is not cls
        ]
        near = get_close_matches(name, taken, n=1, cutoff=0.5)
        if others:
            text += f", only {' and '.join(kind._what for kind in others)} has; "
        elif near:
            text += f"; did you mean {near[0]!r}? "
        else:
            text += "; "
        raise ValueError(
            f"{text}It takes {', '.join(names)}" if near and not others else f"{text}it takes {', '.join(names)}"
        )

    def as_dict(self) -> dict[str, Any]:
        """The options by name."""
        return dict(self.__dict__)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"options do not change once made; use merge({name}=...)")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.__dict__ == self.__dict__

    def __hash__(self) -> int:
        return hash((type(self), self.__dict__.get("name")))

    def __repr__(self) -> str:
        chosen = (f"{name}={value!r}" for name, value in self.__dict__.items() if value != self._defaults[name])
        return f"{type(self).__name__}({', '.join(chosen)})"

    def __reduce__(self) -> tuple[Any, ...]:
        plain = {
            name: dict(value) if isinstance(value, MappingProxyType) else value for name, value in self.__dict__.items()
        }
        return (_restore, (type(self), plain))


def _restore(kind: type[_Options], attributes: dict[str, Any]) -> _Options:
    options = object.__new__(kind)
    options.__dict__.update(
        {name: MappingProxyType(value) if isinstance(value, dict) else value for name, value in attributes.items()}
    )
    return options


_NOT_YET: Mapping[str, checks.Check] = {
    "accelerator_type": checks.not_yet(),
    "label_selector": checks.not_yet({}),
    "fallback_strategy": checks.not_yet([]),
    "placement_group": checks.not_yet("default"),
    "placement_group_bundle_index": checks.not_yet(-1),
    "placement_group_capture_child_tasks": checks.not_yet(False),
    "object_store_memory": checks.size_bytes,
    "enable_task_events": checks.boolean,
    "_labels": checks.not_yet({}),
    "_metadata": checks.ignored,
}

_PLACEMENT: Mapping[str, checks.Check] = {
    "num_cpus": checks.amount,
    "num_gpus": checks.gpus,
    "resources": checks.resources,
    "memory": checks.size_bytes,
    "name": checks.text,
    "runtime_env": checks.environment,
    "scheduling_strategy": checks.strategy,
}

_GENERATOR: Mapping[str, checks.Check] = {
    "num_returns": checks.returns,
    "retry_exceptions": checks.exception_types,
    "max_buffered_items": checks.limit_or_none,
    "max_buffered_bytes": checks.limit_or_none,
    "_generator_backpressure_num_objects": checks.limit_or_none,
    "_num_objects_per_yield": checks.not_yet(1),
    "enable_task_events": checks.boolean,
}

_PRIVATE_NAMES: Mapping[str, str] = {"_generator_backpressure_num_objects": "max_buffered_items"}


def _retry_on(retry_exceptions: bool | tuple[type[BaseException], ...]) -> tuple[str, ...]:
    if retry_exceptions is True:
        return ("Exception",)
    return tuple(type_name_of(kind) for kind in retry_exceptions or ())


class TaskOptions(_Options):
    """What the user chose for a remote function. `num_returns` None is 1, or "streaming" for a generator function."""

    num_cpus: float
    num_gpus: float
    resources: Mapping[str, float]
    memory: int
    num_returns: int | Literal["streaming"] | None
    max_retries: int
    retry_exceptions: bool | tuple[type[BaseException], ...]
    max_calls: int
    threads_per_worker: int
    name: str | None
    runtime_env: RuntimeEnvironment | None
    scheduling_strategy: Any
    max_buffered_items: int | None
    max_buffered_bytes: int | None

    _what = "a task"
    _aliases = _PRIVATE_NAMES
    _checks = {
        **_NOT_YET,
        **_PLACEMENT,
        **_GENERATOR,
        "max_retries": checks.count_or_forever,
        "max_calls": checks.at_least(0),
        "threads_per_worker": checks.at_least(1),
    }
    _defaults = {
        "num_cpus": 1.0,
        "num_gpus": 0.0,
        "resources": _NO_RESOURCES,
        "memory": 0,
        "num_returns": None,
        "max_retries": RETRIES_DEFAULT,
        "retry_exceptions": False,
        "max_calls": 0,
        "threads_per_worker": 1,
        "name": None,
        "runtime_env": None,
        "scheduling_strategy": None,
        "max_buffered_items": None,
        "max_buffered_bytes": None,
    }

    def _agree(self) -> None:
        checks.fits_place("the task", self)

    @property
    def retry_on(self) -> tuple[str, ...]:
        """The names of the exception types after which the task runs again, as the engine compares them."""
        return _retry_on(self.retry_exceptions)


class ActorOptions(_Options):
    """What the user chose for a remote class. `max_concurrency` None is 1, or 1000 for a class with async methods."""

    num_cpus: float
    num_gpus: float
    resources: Mapping[str, float]
    memory: int
    name: str | None
    namespace: str | None
    get_if_exists: bool
    lifetime: str | None
    max_restarts: int
    max_task_retries: int
    max_concurrency: int | None
    max_pending_calls: int | None
    runtime_env: RuntimeEnvironment | None
    scheduling_strategy: Any

    _what = "an actor"
    _checks = {
        **_NOT_YET,
        **_PLACEMENT,
        "namespace": checks.text,
        "get_if_exists": checks.boolean,
        "lifetime": checks.lifetime,
        "max_restarts": checks.count_or_forever,
        "max_task_retries": checks.count_or_forever,
        "max_concurrency": checks.at_least(1),
        "max_pending_calls": checks.limit_or_none,
        "concurrency_groups": checks.not_yet({}, []),
        "allow_out_of_order_execution": checks.not_yet(False),
        "enable_tensor_transport": checks.not_yet(False),
        "_actor_generator_backpressure_num_objects": checks.not_yet(-1),
    }
    _defaults = {
        "num_cpus": 0.0,
        "num_gpus": 0.0,
        "resources": _NO_RESOURCES,
        "memory": 0,
        "name": None,
        "namespace": None,
        "get_if_exists": False,
        "lifetime": None,
        "max_restarts": 0,
        "max_task_retries": 0,
        "max_concurrency": None,
        "max_pending_calls": None,
        "runtime_env": None,
        "scheduling_strategy": None,
    }

    def _agree(self) -> None:
        if self.get_if_exists and self.name is None:
            raise ValueError("option 'get_if_exists' needs the option 'name': only an actor with a name can be found")
        checks.fits_place("the actor", self)

    def concurrency(self, is_async: bool) -> int:
        """How many calls may run at once."""
        if self.max_concurrency is not None:
            return self.max_concurrency
        return ASYNC_CONCURRENCY_DEFAULT if is_async else 1


class MethodOptions(_Options):
    """What the user chose for a method of an actor. `max_task_retries` None is what the actor has."""

    num_returns: int | Literal["streaming"] | None
    max_task_retries: int | None
    retry_exceptions: bool | tuple[type[BaseException], ...]
    name: str | None
    max_buffered_items: int | None
    max_buffered_bytes: int | None

    _what = "a method"
    _aliases = _PRIVATE_NAMES
    _checks = {
        **_GENERATOR,
        "max_task_retries": checks.count_or_forever,
        "name": checks.text,
        "concurrency_group": checks.not_yet(),
        "tensor_transport": checks.not_yet(),
    }
    _defaults = {
        "num_returns": None,
        "max_task_retries": None,
        "retry_exceptions": False,
        "name": None,
        "max_buffered_items": None,
        "max_buffered_bytes": None,
    }

    @property
    def retry_on(self) -> tuple[str, ...]:
        """The names of the exception types after which the call runs again, as the engine compares them."""
        return _retry_on(self.retry_exceptions)


# Options of `ray.init` about parts of Ray that are not here: a dashboard, Redis, metrics, the object store's file.
_MEANINGLESS_IN_INIT = """
include_dashboard dashboard_host dashboard_port logging_format allow_multiple storage system_reserved_cpu
system_reserved_memory _cgroup_path _cluster_id _driver_object_store_memory _enable_object_reconstruction
_java_worker_options _lru_evict _metrics_export_port _node_ip_address _node_name _plasma_directory _redis_max_memory
_redis_password _redis_username _skip_env_hook _system_config _tracing_startup_hook
""".split()


class InitOptions(_Options):
    """What the user chose for the runtime. None is what the machine has."""

    address: str | None
    num_cpus: float | None
    num_gpus: float | None
    resources: Mapping[str, float]
    object_store_memory: int | None
    namespace: str | None
    runtime_env: RuntimeEnvironment | None
    log_to_driver: bool
    logging_level: int
    ignore_reinit_error: bool
    preload: tuple[str, ...]
    memory: int | None
    temp_dir: str | None

    _what = "init()"
    _aliases = {"_memory": "memory", "_temp_dir": "temp_dir"}
    _checks = {
        "address": checks.address,
        "num_cpus": checks.amount,
        "num_gpus": checks.amount,
        "resources": checks.resources,
        "object_store_memory": checks.size_bytes,
        "namespace": checks.text,
        "runtime_env": checks.environment,
        "log_to_driver": checks.boolean,
        "logging_level": checks.level,
        "ignore_reinit_error": checks.boolean,
        "preload": checks.module_names,
        "memory": checks.size_bytes,
        "_memory": checks.size_bytes,
        "temp_dir": checks.text,
        "_temp_dir": checks.text,
        "local_mode": checks.not_yet(False),
        "labels": checks.not_yet({}),
        "job_config": checks.not_yet(),
        "logging_config": checks.not_yet(),
        "enable_resource_isolation": checks.not_yet(False),
        "object_spilling_directory": checks.not_yet(),
        "configure_logging": checks.boolean,
        **{name: checks.ignored for name in _MEANINGLESS_IN_INIT},
    }
    _defaults = {
        "address": None,
        "num_cpus": None,
        "num_gpus": None,
        "resources": _NO_RESOURCES,
        "object_store_memory": None,
        "namespace": None,
        "runtime_env": None,
        "log_to_driver": True,
        "logging_level": 20,
        "ignore_reinit_error": False,
        "preload": (),
        "memory": None,
        "temp_dir": None,
    }
