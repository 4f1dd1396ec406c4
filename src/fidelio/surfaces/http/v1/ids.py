"""Ids on the wire. A session or a store is the same random id with the prefix of what it is to a client."""

from __future__ import annotations

import re
from collections.abc import Iterable

from fidelio.ids import ALPHABET, SESSION_PREFIX
from fidelio.surfaces.http.v1.errors import not_found

_WIRE_ID = re.compile(rf"([a-z]+)_([{ALPHABET}]{{12}})")
# What a client calls the things that are sessions in the ledger.
NOUNS = {
    "sesn": "Session",
    "sthr": "Thread",
    "agent": "Agent",
    "env": "Environment",
    "memstore": "Memory store",
    "vlt": "Vault",
    "depl": "Deployment",
    "drun": "Deployment run",
    "file": "File",
    "skill": "Skill",
    "skillver": "Skill version",
}


def to_wire(prefix: str, session: str) -> str:
    """The id that clients see, such as `sesn_…` for the session `s_…`."""
    return f"{prefix}_{session.removeprefix(SESSION_PREFIX)}"


def to_session(prefix: str, id_: str) -> str:
    """The session in the ledger that an id on the wire names. Raises 404 for what cannot be such an id.

    The ids of our other surfaces (`s_…`) are accepted for sessions too.
    """
    match = _WIRE_ID.fullmatch(id_)
    if match is None or match[1] not in (prefix, *(("s",) if prefix == "sesn" else ())):
        raise not_found(NOUNS.get(prefix, "Object"), id_)
    return f"{SESSION_PREFIX}{match[2]}"


def name_ids(text: str, known: Iterable[str]) -> str:
    """A text of the runtime with ids of the wire. `known`: those that the client has sent, among other values."""
    for id_ in known:
        if match := _WIRE_ID.fullmatch(id_):
            text = text.replace(f"{SESSION_PREFIX}{match[2]}", id_)
    return text
