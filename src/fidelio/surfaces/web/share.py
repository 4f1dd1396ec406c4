"""A session as a single HTML file that needs no server: what happened, the report, and the chain with a check of its own.

The file holds every event with its salt and hash. The check runs in the reader's browser and computes each hash from the one
before, so it finds a changed, added or missing event without trusting whoever made the page around it. It cannot show that the
end was cut off, or that all of it was computed again: for that, compare the head with one that was kept elsewhere.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from markupsafe import Markup

from fidelio import __version__
from fidelio.app.records import ChainVerdict, Records
from fidelio.clock import now_ms
from fidelio.errors import UsageProblem
from fidelio.ledger.model import Event, Session
from fidelio.surfaces.web.rendering import Renderer, read_static
from fidelio.surfaces.web.timeline import list_entries

if TYPE_CHECKING:
    from fidelio.app.person_keys import PersonKey

MOST_EVENTS = 20_000


async def share_session(records: Records, session: Session) -> str:
    """The file of a session, verified now."""
    verdict = await records.verify(session.id)
    differences = (await records.report(session.id, verdict)).differences if session.kind == "workflow" else []
    events = [event async for event in records.all_events(session.id)]
    return render_shared(session, events, verdict, list(differences), await records.signing_keys(session.id))


def render_shared(
    session: Session,
    events: Iterable[Event],
    verdict: ChainVerdict,
    differences: Sequence[str] = (),
    keys: Sequence[PersonKey] = (),
) -> str:
    """The file of a session. Raises `UsageProblem` if it has more events than a browser shows well."""
    found = list(events)
    if len(found) > MOST_EVENTS:
        raise UsageProblem(
            f"Session {session.id} has {len(found):,} events.", remedy=f"At most {MOST_EVENTS:,} fit into a file."
        )
    chain = {"session": session.id, "head": verdict.head.hex(), "events": [_encode(event) for event in found]}
    values = {
        "session": session,
        "title": session.name or session.record.get("workflow") or session.record.get("agent") or session.id,
        "entries": list_entries(found),
        "events": found,
        "verdict": verdict,
        "differences": differences,
        "keys": keys,
        "chain": _embed(chain),
        "style": _read_text("style.css"),
        "script": _read_text("verify.js"),
        "version": __version__,
        "made_at": now_ms(),
    }
    return Renderer().render("shared.html", values)


def _encode(event: Event) -> dict[str, Any]:
    salt = None if event.salt is None else base64.b64encode(event.salt).decode()
    about = {"seq": event.seq, "id": event.id, "type": event.type, "actor": event.actor, "time": event.time}
    return {**about, "raw": event.raw, "salt": salt, "digest": event.digest.hex(), "hash": event.hash.hex()}


def _embed(value: Mapping[str, Any]) -> Markup:
    """JSON for a script element: nothing in it can end the element."""
    text = msgspec.json.encode(value).decode()
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))  # noqa: S704  # escaped here


def _read_text(name: str) -> Markup:
    """A file of this package, which is trusted."""
    return Markup((read_static(name) or b"").decode())  # noqa: S704  # our own file
