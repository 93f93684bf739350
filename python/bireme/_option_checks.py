"""One check per kind of option: takes the option's name and the value that the user gave, returns the value as the
engine wants it.

Called by `bireme._options` only. A value of a wrong type is a `TypeError`, a wrong value a `ValueError`, and both name
the option, the value and what is allowed. `None` never gets here: it means the default.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal

from bireme._environment import RuntimeEnvironment
from bireme.exceptions import NotSupportedError

Check = Callable[[str, Any], Any]

# Amounts of resources are counted in units of this size.
RESOURCE_UNIT = 0.0001


def _wrong_type(name: str, value: object, allowed: str) -> TypeError:
    return TypeError(f"option {name!r} must be {allowed}, not {value!r} of type {type(value).__name__}")


def _wrong_value(name: str, value: object, allowed: str) -> ValueError:
    return ValueError(f"option {name!r} must be {allowed}, not {value!r}")


def _integer(name: str, value: Any, allowed: str) -> int:
    if isinstance(value, bool):
        raise _wrong_type(name, value, allowed)
    try:
        return operator.index(value)
    except TypeError:
        raise _wrong_type(name, value, allowed) from None


def at_least(smallest: int) -> Check:
    """A whole number that is not below `smallest`."""
    allowed = f"a whole number of {smallest} or more"

    def check(name: str, value: Any) -> int:
        number = _integer(name, value, allowed)
        if number < smallest:
            raise _wrong_value(name, value, allowed)
        return number

    return check


def count_or_forever(name: str, value: Any) -> int:
    """A whole number, or -1 for no limit."""
    allowed = "a whole number of 0 or more, or -1 for no limit"
    number = _integer(name, value, allowed)
    if number < -1:
        raise _wrong_value(name, value, allowed)
    return number


def limit_or_none(name: str, value: Any) -> int | None:
    """A whole number above 0, or -1 for no limit, which is None."""
    allowed = "a whole number of 1 or more, or -1 for no limit"
    number = _integer(name, value, allowed)
    if number == 0 or number < -1:
        raise _wrong_value(name, value, allowed)
    return None if number == -1 else number


def amount(name: str, value: Any) -> float:
    """How much of a resource: a number that is not negative."""
    allowed = "a number of 0 or more"
    # Whatever is a number, also one of numpy; a string is not, though it could be read as one.
    if isinstance(value, (bool, str, bytes)) or not hasattr(value, "__float__"):
        raise _wrong_type(name, value, allowed)
    number = float(value)
    if not math.isfinite(number) or number < 0:
        raise _wrong_value(name, value, allowed)
    if 0 < number < RESOURCE_UNIT:
        raise _wrong_value(name, value, f"0 or at least {RESOURCE_UNIT}, the smallest amount of a resource")
    return number


def gpus(name: str, value: Any) -> float:
    """A fraction of one GPU, or a whole number of them."""
    number = amount(name, value)
    if number > 1 and number != int(number):
        raise _wrong_value(name, value, "a fraction below 1, or a whole number")
    return number


def size_bytes(name: str, value: Any) -> int:
    """A size in bytes."""
    return int(amount(name, value))


def resources(name: str, value: Any) -> Mapping[str, float]:
    """The user's own resources by name."""
    allowed = "a dictionary from names to numbers, such as {'licence': 1}"
    if not isinstance(value, Mapping):
        raise _wrong_type(name, value, allowed)
    amounts: dict[str, float] = {}
    for key, number in value.items():
        if not isinstance(key, str):
            raise _wrong_type(f"{name}[{key!r}]", key, "named by a string")
        if key in _OPTION_OF_RESOURCE:
            raise ValueError(
                f"option {name!r} must not have {key!r}: use the option {_OPTION_OF_RESOURCE[key]!r} for it"
            )
        if not key:
            raise _wrong_value(name, value, allowed)
        amounts[key] = amount(f"{name}[{key!r}]", number)
    return MappingProxyType(amounts)


_OPTION_OF_RESOURCE = {
    "CPU": "num_cpus",
    "GPU": "num_gpus",
    "memory": "memory",
    "object_store_memory": "object_store_memory",
}


def returns(name: str, value: Any) -> int | Literal["streaming"]:
    """How many results a call has."""
    allowed = "a whole number of 0 or more, or 'streaming' for a generator"
    if isinstance(value, str):
        if value in ("streaming", "dynamic"):
            return "streaming"
        raise _wrong_value(name, value, allowed)
    number = _integer(name, value, allowed)
    if number < 0:
        raise _wrong_value(name, value, allowed)
    return number


def exception_types(name: str, value: Any) -> bool | tuple[type[BaseException], ...]:
    """Which errors of user code are worth another run: all, none or some types."""
    allowed = "True, False or a list of exception types"
    if isinstance(value, bool):
        return value
    if not isinstance(value, (list, tuple)):
        raise _wrong_type(name, value, allowed)
    for kind in value:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise _wrong_value(name, value, allowed)
    return tuple(value)


def text(name: str, value: Any) -> str:
    """A string with something in it."""
    if not isinstance(value, str):
        raise _wrong_type(name, value, "a string")
    if not value:
        raise _wrong_value(name, value, "a string that is not empty")
    return value


def module_names(name: str, value: Any) -> tuple[str, ...]:
    """Names of modules."""
    if not isinstance(value, (list, tuple)) or not all(isinstance(each, str) for each in value):
        raise _wrong_type(name, value, "a list of names of modules")
    return tuple(value)


def boolean(name: str, value: Any) -> bool:
    """True or False and nothing that is merely like it."""
    if not isinstance(value, bool):
        raise _wrong_type(name, value, "True or False")
    return value


def level(name: str, value: Any) -> int:
    """A level of the logging module, as number or name."""
    names = {"CRITICAL": 50, "FATAL": 50, "ERROR": 40, "WARNING": 30, "WARN": 30, "INFO": 20, "DEBUG": 10, "NOTSET": 0}
    if isinstance(value, str):
        if value.upper() not in names:
            raise _wrong_value(name, value, f"a level of logging ({', '.join(names)})")
        return names[value.upper()]
    return _integer(name, value, "a level of logging, such as logging.INFO or 'INFO'")


def environment(name: str, value: Any) -> RuntimeEnvironment:
    """The runtime environment, looked at now so that its errors are at the caller's line."""
    return RuntimeEnvironment.parse(value, option=name)


def strategy(name: str, value: Any) -> Any:
    """Where to run: a word, or one of the classes of `bireme.util.scheduling_strategies`."""
    allowed = "'DEFAULT', 'SPREAD', a NodeAffinitySchedulingStrategy or a PlacementGroupSchedulingStrategy"
    if isinstance(value, str):
        if value not in ("DEFAULT", "SPREAD"):
            raise _wrong_value(name, value, allowed)
        return value
    # Here, since who has such a value has imported it.
    from bireme.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

    if not isinstance(value, (NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy)):
        raise _wrong_type(name, value, f"{allowed} (of bireme.util.scheduling_strategies)")
    return value


def fits_place(what: str, options: Any) -> None:
    """Refuses amounts that can never be given where the user wants them."""
    place = options.scheduling_strategy
    if place is None or isinstance(place, str):
        return
    asked = {"CPU": options.num_cpus, "GPU": options.num_gpus, "memory": float(options.memory), **options.resources}
    place.check_resources({name: amount for name, amount in asked.items() if amount}, what)


def lifetime(name: str, value: Any) -> str | None:
    """How long an actor lives: as long as its handles, or until it is killed."""
    if value not in ("detached", "non_detached"):
        raise _wrong_value(name, value, "None, 'detached' or 'non_detached'")
    return "detached" if value == "detached" else None


def address(name: str, value: Any) -> str | None:
    """The node to attach to; None to start one inside this program."""
    allowed = "None, 'local', 'auto', 'HOST:PORT' or the folder of a node"
    if not isinstance(value, str):
        raise _wrong_type(name, value, allowed)
    if value == "local":
        return None
    if "://" in value:
        raise NotSupportedError(
            f"option {name!r} with {value!r} is not supported: start a node on this machine with `bireme start`, "
            "and give 'auto'"
        )
    if value != "auto" and ":" not in value and "/" not in value:
        raise _wrong_value(name, value, allowed)
    return value


def not_yet(*harmless: object) -> Check:
    """An option of Ray's that has no counterpart yet: only the values that ask for nothing are taken."""

    def check(name: str, value: Any) -> None:
        if not any(value is each or (type(value) is type(each) and value == each) for each in harmless):
            raise NotSupportedError(f"option {name!r} is not supported yet; leave it out")

    return check


def ignored(name: str, value: Any) -> None:
    """An option of Ray's that means nothing here, such as where a dashboard would be."""
