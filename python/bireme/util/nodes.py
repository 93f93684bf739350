"""Where a program runs."""

from __future__ import annotations

import bireme

__all__ = ["get_node_ip_address"]


def get_node_ip_address() -> str:
    """The address of the node of the calling code, under which the other nodes reach it.

    >>> import bireme
    >>> from bireme.util import get_node_ip_address
    >>> with bireme.init():
    ...     get_node_ip_address()
    '127.0.0.1'
    """
    own = bireme.get_runtime_context().get_node_id()
    address: str = next(node["NodeManagerAddress"] for node in bireme.nodes() if node["NodeID"] == own)
    return address
