"""Which actors have a name."""

from __future__ import annotations

from typing import Any

import bireme

__all__ = ["list_named_actors"]


def list_named_actors(all_namespaces: bool = False) -> list[Any]:
    """The names of the live named actors of this namespace, or `{"name": ..., "namespace": ...}` for those of every
    namespace.

    >>> import bireme
    >>> from bireme.util import list_named_actors
    >>> @bireme.remote
    ... class Counter:
    ...     pass
    >>> counter = Counter.options(name="counter").remote()
    >>> list_named_actors()
    ['counter']
    >>> bireme.shutdown()
    """
    pairs: list[tuple[str, str]] = bireme.actor.named_actors(all_namespaces)
    if all_namespaces:
        return [{"name": name, "namespace": namespace} for namespace, name in pairs]
    return [name for _, name in pairs]
