"""Whether arguments fit a function, decided where the caller stands."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

# More positional arguments than any call can have.
_UNBOUNDED = 1 << 16

Signature = tuple[tuple[str, inspect.Signature], int, int]


def of(target: Callable[..., Any], name: str, *, skip_first: bool = False) -> Signature | None:
    """The name and signature, and how many positional arguments fit without looking closer; None when unknown."""
    try:
        signature = inspect.signature(target)
    except (ValueError, TypeError):
        return None
    parameters = list(signature.parameters.values())
    if skip_first:
        if not parameters:
            return None
        if parameters[0].kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD):
            parameters = parameters[1:]
            signature = signature.replace(parameters=parameters)
    least = most = 0
    for parameter in parameters:
        required = parameter.default is inspect.Parameter.empty
        if parameter.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD):
            least += required
            most += 1
        elif parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            most = _UNBOUNDED
        elif parameter.kind is inspect.Parameter.KEYWORD_ONLY and required:
            # Cannot be called without names, so every call is looked at closely.
            least = _UNBOUNDED
    return (name, signature), least, most


def check(target: tuple[str, inspect.Signature], args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> None:
    """Raises a TypeError when the arguments do not fit."""
    name, signature = target
    try:
        signature.bind(*args, **(kwargs or {}))
    except TypeError as error:
        raise TypeError(f"{name}{signature}: {error}") from None
