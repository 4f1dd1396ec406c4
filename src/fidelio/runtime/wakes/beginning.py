"""The beginning of a wake: what was sent, why the session wakes, and the notes of the runtime, in a message for the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate, takewhile
from typing import Any

import msgspec

from fidelio.ledger.model import Event, NewEvent
from fidelio.runtime import events as e
from fidelio.runtime.setup.setup import Setup, describe_setup, setup_document
from fidelio.runtime.snapshots.record import describe_restored
from fidelio.runtime.tools.model import event
from fidelio.runtime.wakes import ending
from fidelio.runtime.wakes.content import escape_tags, join_texts, store_content
from fidelio.runtime.wakes.hints import gather_notes
from fidelio.runtime.wakes.preparation import Prepared
from fidelio.runtime.wakes.prompt import (
    SYSTEM_CLOSING,
    SYSTEM_OPENING,
    describe_reasons,
    describe_rejected,
    render_notes,
    text_block,
)
from fidelio.runtime.wakes.rules import Answered, Fresh
from fidelio.runtime.wakes.updates import WakeUpdates

# The events of a single wake; what is left is for the next one.
MAX_EVENTS = 100
MAX_INPUT = 400_000
_PENDING = (e.USER_MESSAGE, e.USER_OUTCOME, e.SYSTEM_MESSAGE)


class Beginning:
    """Commits the beginning of a wake."""

    def __init__(self, updates: WakeUpdates, prepared: Prepared) -> None:
        self._updates, self._prepared = updates, prepared
        self._context = updates.context

    async def commit(self, wake: str, plan: Fresh | Answered) -> Setup | None:
        """Commit it; the setup, if it was looked at."""
        if isinstance(plan, Answered):
            await self._go_on(wake)
            return None
        received = await self._load_pending()
        wakes, now = self._updates.record.wakes, self._context.clock()
        setup = await self._describe_setup()
        restored = describe_restored(self._updates.record.snapshots)
        reasons = map(escape_tags, describe_reasons(plan, now=now))
        lines = [*reasons, *describe_rejected(wakes.rejected), *restored, *self._prepared.notices]
        is_own = self._prepared.agent.definition.tools.toolset == "fidelio_toolset"
        # Notes point at tools of our own toolset.
        notes = await self._build_notes(received, setup) if is_own and (received or not plan.goes_on) else ()
        own = [text_block("\n".join(lines))] if lines else []
        noted = [text_block(render_notes(notes))] if notes else []
        stored = store_content([*own, *noted])
        content = [block for item in received for block in _read_content(item)]
        system = [block for item in received for block in read_system(item)]
        body = {
            "summary": _summarize(plan, received),
            "messages": len(received),
            "processed_seq": received[-1].seq if received else wakes.processed_seq,
            "consumed": [queued.id for queued in plan.wakes],
            "setup": setup.fingerprint,
            # The first blocks of the input were received: whatever they look like, they are no notes of the runtime.
            "received": len(content),
            "input": [*content, *system, *stored.content],
        }
        digests = (*_find_digests([*content, *system]), *stored.digests)
        documents = () if setup.fingerprint == wakes.setup else (setup_document(self._updates.loaded.id, setup),)
        events = (*self._notice_price(wake), *ending.start_wake(wake, body, digests))
        await self._updates.commit(events, blobs=stored.blobs, documents=documents)
        return setup

    def _notice_price(self, wake: str) -> tuple[NewEvent, ...]:
        """Say once that the default budget in money is off."""
        prepared = self._prepared
        if self._updates.record.wakes.count or prepared.info.price is not None or prepared.budget.usd is not None:
            return ()
        text = f"The price of {prepared.model} is not known, so the default budget in US dollars is off."
        remedy = "Set the price in models.yaml of the home, or limit tokens."
        return (event(e.SESSION_NOTICE, {"message": text, "remedy": remedy, "wake_id": wake}),)

    async def _go_on(self, wake: str) -> None:
        """Begin a wake that continues a turn. It only says what was wrong with a directive."""
        lines = describe_rejected(self._updates.record.wakes.rejected)
        stored = store_content([text_block("\n".join(lines))] if lines else [])
        # What a program adds to its answer belongs to this turn. A message of a person begins the next one.
        pending = await self._load_pending()
        added = tuple(takewhile(lambda item: item.type == e.SYSTEM_MESSAGE, pending))
        system = [block for item in added for block in read_system(item)]
        body = {"summary": "Answers have arrived.", "resumes": True, "input": [*system, *stored.content]}
        if added:
            body |= {"messages": len(added), "processed_seq": added[-1].seq}
        digests = (*_find_digests(system), *stored.digests)
        await self._updates.commit(ending.start_wake(wake, body, digests), blobs=stored.blobs)

    async def _load_pending(self) -> tuple[Event, ...]:
        record = self._updates.record
        if not record.wakes.pending:
            return ()
        events = await self._context.ledger.events(
            self._updates.loaded.id,
            after=record.wakes.processed_seq,
            types=_PENDING,
            limit=MAX_EVENTS,
        )
        return _choose_fitting(events)

    async def _describe_setup(self) -> Setup:
        prepared = self._prepared
        return await describe_setup(
            self._context,
            self._updates.loaded,
            agent=prepared.agent,
            prompt_sections=prepared.sections,
            tools=prepared.offer.definitions,
            bootstrap=prepared.bootstrap,
            skills=prepared.skills,
        )

    async def _build_notes(self, received: tuple[Event, ...], setup: Setup) -> tuple[str, ...]:
        defined = [item.body.get("title", "") for item in received if item.type == e.USER_OUTCOME]
        return await gather_notes(
            self._context,
            self._updates.loaded,
            self._prepared,
            message=newest_message(received),
            outcome=defined[-1] if defined else "",
            setup=setup.fingerprint,
        )


def _choose_fitting(events: tuple[Event, ...]) -> tuple[Event, ...]:
    """The first events whose content fits into the event that begins a wake, at least the first."""
    sizes = accumulate(len(msgspec.json.encode(event.body)) for event in events)
    return events[: max(1, sum(size <= MAX_INPUT for size in sizes))]


def _read_content(received: Event) -> Iterable[dict[str, Any]]:
    """What the model reads of an event that was sent to it."""
    body = received.body
    if received.type == e.SYSTEM_MESSAGE:
        return []
    if received.type == e.USER_OUTCOME:
        return [text_block(_describe_outcome(body))]
    content: list[dict[str, Any]] = body.get("content", [])
    return content


def read_system(received: Event) -> list[dict[str, Any]]:
    """What a program has added to the instructions, between marks that no other text can have."""
    if received.type != e.SYSTEM_MESSAGE:
        return []
    return [text_block(SYSTEM_OPENING), *received.body.get("content", []), text_block(SYSTEM_CLOSING)]


def _describe_outcome(body: Mapping[str, Any]) -> str:
    criteria = [f"- {item['text']}" for item in body.get("criteria", ())]
    author = "The person" if body.get("author") == "person" else "The model that called you"
    lines = [f"{author} has defined the outcome {body.get('title', '')!r}.", body.get("detail", ""), *criteria]
    closing = "It is checked when you stop. Work until every criterion is met."
    return "\n".join(line for line in (*lines, closing) if line)


def _find_digests(content: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    for block in content:
        stored = block.get("stored") or block.get("source", {}).get("stored") or {}
        if digest := stored.get("blob"):
            yield digest


def _summarize(plan: Fresh, received: tuple[Event, ...]) -> str:
    reasons = [wake.reason for wake in plan.wakes] + [f"schedule {schedule.name}" for schedule in plan.schedules]
    sent = [f"{len(received)} pending events"] if received else []
    return f"Woken by {', '.join([*sent, *reasons])}."[:300]


def newest_message(received: tuple[Event, ...]) -> str:
    """The text of the newest message, for cues."""
    messages = [join_texts(item.body.get("content", [])) for item in received if item.type == e.USER_MESSAGE]
    return messages[-1] if messages else ""
