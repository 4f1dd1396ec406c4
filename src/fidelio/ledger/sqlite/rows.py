"""Column lists, and functions that run statements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw

Row = tuple[Any, ...]

EVENT = "position, session, seq, id, type, actor, time, body, salt, digest, hash"
REQUEST = (
    "id, session, kind, about, question, options, subject, detail, state, answer, answered_by, channel, assurance,"
    " opened_at, closed_at, expires_at"
)


def join_sql(*fragments: str) -> str:
    """Join SQL fragments that are constants of this package; values are always bound as parameters."""
    return " ".join(fragments)


def fetch(connection: apsw.Connection, statement: str, values: Sequence[Any] = ()) -> list[Row]:
    rows: list[Row] = connection.execute(statement, values).fetchall()
    return rows
