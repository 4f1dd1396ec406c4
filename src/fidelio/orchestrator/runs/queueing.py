"""Queueing of runs: the events of a queued run, and the prompt that is built from them.

The prompt of a run may consist of its own prompt, messages that arrived during the previous run, and a notice that the previous
run was lost. The event refers to them; the text is built when the run begins.
"""

from __future__ import annotations

from typing import Any

from fidelio.ids import run_id
from fidelio.ledger import Ledger
from fidelio.ledger.long_text import StoredText, load_text
from fidelio.ledger.model import NewEvent
from fidelio.ledger.paging import all_events
from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.orchestrator.record import errors
from fidelio.orchestrator.record.record import MESSAGE_DELIVERED, MESSAGE_QUEUED, RUN_QUEUED, RunRecord
from fidelio.orchestrator.record.rules import MAX_QUEUED_MESSAGES, is_person_actor
from fidelio.orchestrator.record.unit_of_work import AgentDecision, LoadedAgent, draft_event, view_session

RESUME_PROMPT = (
    "Your last turn was cut off: the process that ran you ended before you had finished. Look at what is done already, do not "
    "repeat it, and finish the rest."
)


def draft_next_run(
    current: LoadedAgent | str,
    *,
    prompt: StoredText | None = None,
    blueprint: Blueprint | None = None,
    resumes: RunRecord | None = None,
    by: str = "host",
) -> tuple[NewEvent, ...]:
    """The events of the next run of a session (or the first of a new session), with all queued messages.

    `by` asks for it; a run also counts as asked for by a person if one of the messages is from a person.
    """
    session, number = (current, 1) if isinstance(current, str) else (current.id, current.record.run.number + 1)
    messages = [] if isinstance(current, str) else list(current.record.messages)
    run = run_id(session, number)
    person_waits = not isinstance(current, str) and current.record.person_waits
    body: dict[str, Any] = {"run": run, "number": number, "asked": person_waits or is_person_actor(by)}
    if prompt is not None:
        body["prompt"] = prompt.body
    if blueprint is not None:
        body |= {"blueprint": blueprint.name, "blueprint_hash": blueprint.hash}
    if resumes is not None:
        body |= {"resumes": resumes.id, "fresh": resumes.fresh}
    queued = draft_event(RUN_QUEUED, body, prompt.digests if prompt else ())
    if not messages:
        return (queued,)
    body["messages"] = messages
    return queued, draft_event(MESSAGE_DELIVERED, {"run": run, "messages": messages})


def draft_message(current: LoadedAgent, stored: StoredText, origin: dict[str, str]) -> AgentDecision:
    """The decision to queue a message for the next run."""
    if len(current.record.messages) >= MAX_QUEUED_MESSAGES:
        raise errors.message_queue_full(view_session(current))
    # A message with a run is the callback of a child.
    from_person = "run" not in origin and is_person_actor(origin["from"])
    body = {**origin, "message": stored.body, "asked": from_person}
    return AgentDecision(None, events=(draft_event(MESSAGE_QUEUED, body, stored.digests),), blobs=stored.blobs)


async def load_prompt(ledger: Ledger, session: str, run: RunRecord) -> str:
    """Build the whole prompt of a run."""
    body = await _load_body(ledger, session, run.prompt_seq)
    prompt = await _load_texts(ledger, session, body)
    if not body.get("resumes"):
        return prompt
    # The agent may not have read the prompt of the lost run, so it is repeated.
    before = await load_original_prompt(ledger, session, run)
    return "\n\n".join(text for text in (RESUME_PROMPT, f"You were asked:\n\n{before}", prompt) if text)


async def load_original_prompt(ledger: Ledger, session: str, run: RunRecord) -> str:
    """The prompt of the first of a chain of lost runs."""
    body = await _load_body(ledger, session, run.prompt_seq)
    while resumed := body.get("resumes"):
        body = await _find_queued_body(ledger, session, resumed)
    return await _load_texts(ledger, session, body)


async def _load_texts(ledger: Ledger, session: str, body: dict[str, Any]) -> str:
    texts = [
        await load_text(ledger, (await _load_body(ledger, session, seq)).get("message")) for seq in body.get("messages", ())
    ]
    if "prompt" in body:
        texts.append(await load_text(ledger, body["prompt"]))
    return "\n\n".join(texts)


async def _find_queued_body(ledger: Ledger, session: str, run: str) -> dict[str, Any]:
    found = await all_events(ledger, session, types=(RUN_QUEUED,))
    return next((body for event in found if (body := event.body).get("run") == run), {})


async def _load_body(ledger: Ledger, session: str, seq: int) -> dict[str, Any]:
    found = await ledger.events(session, after=seq - 1, limit=1)
    return found[0].body if found else {}
