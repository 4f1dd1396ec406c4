"""A session as a single HTML file that needs no server: what happened, the report, and the chain with a check of its own.

The file holds every event with its salt and hash. The check runs in the reader's browser and computes each hash from the one
before, so it finds a changed, added or missing event without trusting whoever made the page around it; a content that is shown
and is not that of its event is found too. It cannot show that the end was cut off, or that all of it was computed again: for
that, compare the head with one that was kept elsewhere.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import msgspec
from markupsafe import Markup

from fidelio import __version__
from fidelio.app.records import ChainVerdict, Records
from fidelio.clock import now_ms
from fidelio.errors import Command, Hint, UsageProblem
from fidelio.ledger.model import Event, Session
from fidelio.surfaces.timeline import list_entries, name_checkpoint
from fidelio.surfaces.web.rendering import Renderer, read_static
from fidelio.surfaces.web.session_views import SessionView

if TYPE_CHECKING:
    from fidelio.app.passkeys import PersonKey
    from fidelio.workflows.report import Report

# What a browser shows and verifies well.
MOST_EVENTS, MOST_BYTES = 20_000, 32 * 1024 * 1024
ANSWERED = "request.answered"
_BLANKS = re.compile(r"[ \t\r\n]+")


async def share_session(records: Records, session: Session) -> str:
    """The file of a session, verified now. Raises `UsageProblem` before it reads a session that is too large."""
    events = await _load_events(records, session)
    verdict = await records.verify(session.id)
    report = await records.report(session.id, verdict) if session.kind == "workflow" else None
    return _render(session, events, verdict, report, await records.signing_keys(session.id))


async def _load_events(records: Records, session: Session) -> list[Event]:
    if session.last_seq > MOST_EVENTS:
        raise _too_large(session, f"{session.last_seq:,} events", f"{MOST_EVENTS:,} events")
    found, size = list[Event](), 0
    async for event in records.all_events(session.id):
        found.append(event)
        size += len(event.raw or "")
        if size > MOST_BYTES:
            raise _too_large(session, f"more than {MOST_BYTES >> 20} MiB", f"{MOST_BYTES >> 20} MiB")
    return found


def _too_large(session: Session, size: str, most: str) -> UsageProblem:
    remedy = Hint(f"At most {most} fit into a file. Verify it here with ", Command("verify", session.id), ".")
    return UsageProblem(f"Session {session.id} has {size}.", remedy=remedy)


def _render(
    session: Session, events: Sequence[Event], verdict: ChainVerdict, report: Report | None, keys: Sequence[PersonKey]
) -> str:
    renderer, title = Renderer(), SessionView(session).title
    answers = [event for event in events if event.type == ANSWERED and not event.redacted]
    values = {
        "session": session,
        "title": title,
        "entries": list_entries(events),
        "bodies": {event.seq: event.body for event in events},
        "answers": [(_find_question(answer, report), answer) for answer in answers],
        "is_signed": any("proof" in answer.body for answer in answers),
        "verdict": verdict,
        "report": report,
        "keys": keys,
        "version": __version__,
        "made_at": now_ms(),
    }
    main = renderer.render("shared_session.html", values)
    # What foreign text contains is escaped, so this comment is ours.
    heading, _, content = main.partition("<!-- verification -->")
    chain = {"session": session.id, "head": verdict.head.hex(), "events": [_encode(event) for event in events]}
    around = {
        "title": title,
        "verdict": verdict,
        "heading": Markup(heading),  # noqa: S704  # rendered above
        "content": Markup(content),  # noqa: S704  # rendered above
        "style": _read_text("style.css"),
        "script": _read_text("verify.js"),
    }
    page = _digest_page(renderer.render("shared.html", {**around, "chain": ""}))
    return renderer.render("shared.html", {**around, "chain": _embed({**chain, "page": page})})


def _find_question(event: Event, report: Report | None) -> str:
    """The question that an event answers, else its checkpoint. The events themselves hold only the digest of a question."""
    answers = (answer for visit in (report.visits if report else ()) for answer in visit.answers)
    found = next((answer.question for answer in answers if answer.request == event.body.get("request")), "")
    return found or name_checkpoint(str(event.body.get("key") or "")) or "A question"


class _PageReader(HTMLParser):
    """Collects the policy, the title and the body of a document without blanks, as `verify.js` reads them in a browser."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.policy, self.title, self.body = "", "", list[str]()
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.policy += values.get("content", "") if "http-equiv" in values else ""
        self._inside = "title" if tag == "title" else "verdict" if values.get("id") == "verdict" else ""
        if self.body or tag == "body":
            self.body.append(f"<{tag}{''.join(sorted(f' {name}={value}' for name, value in values.items()))}>")

    def handle_endtag(self, _tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "title":
            self.title += data
        elif self.body and self._inside != "verdict":
            self.body.append(data)


def _digest_page(html: str) -> str:
    """The digest of what a reader sees, except the verdict. It is no proof, but finds a file that somebody has edited."""
    reader = _PageReader()
    reader.feed(html)
    reader.close()
    text = "".join(_BLANKS.split("".join([reader.policy, reader.title, *reader.body])))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


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
