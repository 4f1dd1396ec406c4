"""Facts about the database that surfaces show to people: versions, and where the ledger is."""

from __future__ import annotations

import msgspec

from fidelio.settings import Settings


class SqliteVersion(msgspec.Struct, frozen=True):
    """The SQLite library in use. `is_safe`: several processes may write one file without damaging it."""

    version: str
    driver: str
    is_safe: bool


def sqlite_version() -> SqliteVersion:
    from fidelio.ledger.sqlite import connection

    found = connection.sqlite_version()
    return SqliteVersion(".".join(map(str, found)), connection.driver_version(), found >= connection.SAFE_VERSION)


def describe_ledger(settings: Settings) -> str:
    """The home, or the ledger where that is kept elsewhere; without the password of a database."""
    if settings.ledger == str(settings.home.ledger):
        return str(settings.home.path)
    if "://" not in settings.ledger:
        return settings.ledger
    from fidelio.ledger.postgres.errors import hide_password

    return hide_password(settings.ledger)
