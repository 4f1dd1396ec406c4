"""How a run comes to be: what is written when one is queued, and what its agent is then told.

A turn may answer several things at once: what it was asked for, messages that arrived while the one before was at work, and
that the one before was lost. The event names them; the words are put together when the turn begins.
"""

from __future__ import annotations

from typing import Any

from fidelio.ids import run_id
from fidelio.ledger import Ledger
from fidelio.ledger.long_text import StoredText, load_text
from fidelio.ledger.paging import all_events
from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.orchestrator.record import phrases
from fidelio.orchestrator.record.record import DELIVERED, MESSAGE, QUEUED, RunRecord
from fidelio.orchestrator.record.rules import MOST_MESSAGES
from fidelio.orchestrator.record.unit_of_work import AgentDecision, EventDraft, LoadedAgent, view

GO_ON = (
    "Your last turn was cut off: the process that ran you ended before you had finished. Look at what is done already, do not "
    "repeat it, and finish the rest."
)


def next_run(
    now: LoadedAgent | str,
    *,
    prompt: StoredText | None = None,
    blueprint: Blueprint | None = None,
    resumes: RunRecord | None = None,
) -> tuple[EventDraft, ...]:
    """The next run of a session (or the first of a new one), with all messages that wait for it."""
    session, number, messages = (now, 1, ()) if isinstance(now, str) else _standing(now)
    run = run_id(session, number)
    body: dict[str, Any] = {"run": run, "number": number}
    if prompt is not None:
        body["prompt"] = prompt.body
    if blueprint is not None:
        body |= {"blueprint": blueprint.name, "blueprint_hash": blueprint.hash}
    if resumes is not None:
        body |= {"resumes": resumes.id, "fresh": resumes.fresh}
    if not messages:
        return (EventDraft(QUEUED, body, prompt.digests if prompt else ()),)
    body["messages"] = list(messages)
    delivered = EventDraft(DELIVERED, {"run": run, "messages": list(messages)})
    return EventDraft(QUEUED, body, prompt.digests if prompt else ()), delivered


def queue_message(now: LoadedAgent, kept: StoredText, origin: dict[str, str]) -> AgentDecision:
    """The decision to keep a message for the next turn."""
    if len(now.record.messages) >= MOST_MESSAGES:
        raise phrases.too_many_messages(view(now))
    return AgentDecision(drafts=(EventDraft(MESSAGE, {**origin, "message": kept.body}, kept.digests),), blobs=kept.blobs)


def _standing(now: LoadedAgent) -> tuple[str, int, tuple[int, ...]]:
    return now.id, now.record.run.number + 1, now.record.messages


async def prompt_of(ledger: Ledger, session: str, run: RunRecord) -> str:
    """Everything the agent is told in this run."""
    body = await _body(ledger, session, run.asked)
    asked = await _words(ledger, session, body)
    if not body.get("resumes"):
        return asked
    # Whether it got as far as reading what it was asked is not known, so it is told again.
    before = await original_prompt(ledger, session, run)
    return "\n\n".join(text for text in (GO_ON, f"You were asked:\n\n{before}", asked) if text)


async def original_prompt(ledger: Ledger, session: str, run: RunRecord) -> str:
    """What was first asked of a turn that was lost, however often it has been lost since."""
    body = await _body(ledger, session, run.asked)
    while resumed := body.get("resumes"):
        body = await _asked_for(ledger, session, resumed)
    return await _words(ledger, session, body)


async def _words(ledger: Ledger, session: str, body: dict[str, Any]) -> str:
    texts = [await load_text(ledger, (await _body(ledger, session, seq)).get("message")) for seq in body.get("messages", ())]
    if "prompt" in body:
        texts.append(await load_text(ledger, body["prompt"]))
    return "\n\n".join(texts)


async def _asked_for(ledger: Ledger, session: str, run: str) -> dict[str, Any]:
    found = await all_events(ledger, session, types=(QUEUED,))
    return next((body for event in found if (body := event.body).get("run") == run), {})


async def _body(ledger: Ledger, session: str, seq: int) -> dict[str, Any]:
    found = await ledger.events(session, after=seq - 1, limit=1)
    return found[0].body if found else {}
