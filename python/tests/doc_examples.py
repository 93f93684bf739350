"""A plugin for the run of the docstring examples: each begins without a runtime, as in a user's session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import bireme


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """Ends what an example has started."""
    yield
    bireme.shutdown()
