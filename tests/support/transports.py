"""The transports of a test: all for one that is marked `every_transport`, and the call itself for every other.

The replies are compared over all transports elsewhere, so a test of a rule need not be repeated on each.
"""

from __future__ import annotations

import pytest

TRANSPORTS = ("memory", "stdio", "http")


def parametrize_transport(metafunc: pytest.Metafunc) -> None:
    """Give the argument or fixture `transport` its values."""
    if "transport" in metafunc.fixturenames:
        every = metafunc.definition.get_closest_marker("every_transport") is not None
        metafunc.parametrize("transport", TRANSPORTS if every else TRANSPORTS[:1])
