"""Structs of a report. Surfaces print them, and their encoded names are the keys of its JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec


class ReportedAnswer(msgspec.Struct, rename={"opened_at": "asked_at"}):
    """A request of the session and its answer. `state` is open, answered, dismissed or withdrawn.

    `demanded` is `proven`, `person` or `any`, as the definition and the session demanded it when the request was opened.
    """

    checkpoint: str
    question: str
    request: str
    opened_at: int
    state: str = "open"
    option: str = ""
    by: str = ""
    channel: str = ""
    assurance: str = ""
    after_ms: int = 0
    demanded: str = "any"
    # Of the key that has signed the answer.
    fingerprint: str = ""

    def close(self, body: Mapping[str, Any]) -> None:
        """Note the answer, from the body of its event."""
        self.state = "dismissed" if body.get("mode") == "condition_not_met" else "answered"
        self.option, self.by, self.channel = body.get("option", ""), body["by"], body["channel"]
        self.assurance, self.after_ms = body["assurance"], body["after_ms"]
        self.fingerprint = (body.get("proof") or {}).get("fingerprint", "")

    @property
    def is_not_proven(self) -> bool:
        return self.demanded == "proven" and self.state == "answered" and self.assurance != "proven"


_VISIT_KEYS = {
    "steps": "asked",
    "loop_steps": "asked_in_loops",
    "has_manifest": "manifest_given",
    "unopened_checkpoints": "never_asked",
}


class Visit(msgspec.Struct, rename=_VISIT_KEYS):
    """A visit of an activity: what its definition required and what was reported.

    `steps` and `loop_steps` are the steps of the definition. `unopened_checkpoints` are required checkpoints that applied and
    were not opened, `never_started` workflows that its triggers name and that were not started.
    """

    activity: str
    name: str
    entered_at: int
    left_at: int | None = None
    steps: list[str] = []
    loop_steps: list[str] = []
    done: list[dict[str, Any]] = []
    has_manifest: bool = False
    answers: list[ReportedAnswer] = []
    unopened_checkpoints: list[str] = []
    never_started: list[str] = []
    differences: list[str] = []


class RefusedCall(msgspec.Struct):
    """A call that was refused."""

    at: int
    tool: str
    agent: str
    reason: str


class ReportedCancellation(msgspec.Struct):
    """The end of a session by a person. `session` is the cancelled session that started it, directly or not."""

    at: int
    by: str
    channel: str
    reason: str
    session: str = ""


class Report(msgspec.Struct):
    """A session from its first event to its last.

    `set_by` maps variables to the actors that set them. `found_in` is the root from which the definition was loaded, empty if
    it was not recorded. `drift` says how the files differed from those that the session began with, and `snapshot_calls` counts
    the calls that were served from the snapshot for that reason. `ended_unchecked_by` is the actor and channel of an end
    without the definition, which only earlier versions have recorded. `children` are the reports of its child sessions; one
    without a workflow cannot be read here. `mismatches` says what is stored beside the events and differs from them, and
    `unchecked` are the numbers of redacted events with something that was compared with the definition.
    """

    session: str
    workflow: str = ""
    title: str = ""
    version: str = ""
    definition: str = ""
    found_in: str = ""
    fidelity: str = "advise"
    unverified: bool = False
    claims_to_continue: str = ""
    restored: bool = False
    parent: str = ""
    started_at: int = 0
    ended_at: int | None = None
    ended_unchecked_by: str = ""
    cancelled: ReportedCancellation | None = None
    drift: list[str] = []
    snapshot_calls: int = 0
    agents: list[str] = []
    visits: list[Visit] = []
    refused: list[RefusedCall] = []
    variables: dict[str, Any] = {}
    set_by: dict[str, str] = {}
    never_entered: list[str] = []
    children: list[Report] = []
    mismatches: list[str] = []
    unchecked: list[int] = []

    @property
    def completed(self) -> bool:
        return self.ended_at is not None

    @property
    def differences(self) -> list[str]:
        """All differences between the definition and what happened, with those of the child sessions."""
        found = [f"{visit.activity}: {text}" for visit in self.visits for text in visit.differences]
        return [*found, *self.own_differences, *self._iter_child_differences()]

    @property
    def own_differences(self) -> list[str]:
        """The differences that concern the session as a whole."""
        ended = f"The session was ended without its definition, by {self.ended_unchecked_by}."
        found = [
            ("The session was ended before its workflow was.", self.cancelled is not None),
            ("The session was rebuilt from a token whose seal could not be checked.", self.unverified),
            (ended, bool(self.ended_unchecked_by)),
        ]
        changed = (f"The record was changed outside of Fidelio: {text}." for text in self.mismatches)
        return [*changed, *(text for text, holds in found if holds), *self.erased, *self.drift]

    @property
    def erased(self) -> list[str]:
        """What could not be checked because events were redacted."""
        return [f"What depends on event {number} could not be checked because it was redacted." for number in self.unchecked]

    def iter_children(self) -> Iterator[Report]:
        """All child sessions, also those of child sessions."""
        for child in self.children:
            yield child
            yield from child.iter_children()

    def _iter_child_differences(self) -> Iterator[str]:
        for child in self.children:
            name = f"{child.workflow} ({child.session})" if child.workflow else child.session
            unread = [] if child.workflow else ["The session cannot be read here, so it was not checked."]
            yield from (f"{name}: {text}" for text in [*unread, *child.differences])
