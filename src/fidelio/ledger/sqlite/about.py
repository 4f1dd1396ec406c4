"""Which SQLite this is, for whoever checks the machine."""

from __future__ import annotations

import apsw

# Before this, two writers on one file could damage it, rarely.
SAFE_VERSION = (3, 51, 3)


def sqlite_version() -> tuple[int, ...]:
    return tuple(map(int, apsw.sqlite_lib_version().split(".")))


def driver_version() -> str:
    return apsw.apsw_version()
