"""The examples in the docstrings run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import bireme

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL


def modules() -> list[str]:
    found = ["bireme"]
    for module in pkgutil.walk_packages(bireme.__path__, "bireme."):
        if "bench" not in module.name and not module.name.endswith("._native"):
            found.append(module.name)
    return found


@pytest.mark.parametrize("name", modules())
def test_docstring_examples_run(name: str) -> None:
    failures, _ = doctest.testmod(importlib.import_module(name), optionflags=OPTIONS)
    bireme.shutdown()
    assert not failures


def test_every_public_name_is_documented() -> None:
    for name in bireme.__all__:
        if not name.startswith("__"):
            assert getattr(bireme, name).__doc__, name
