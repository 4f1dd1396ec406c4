"""Values of a report. They are apart from the builder because surfaces read and print them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class AnswerGiven:
    """One question of the session, and who answered it how. `state` is open, answered, dismissed or withdrawn."""

    checkpoint: str
    question: str
    request: str
    asked_at: int
    state: str = "open"
    option: str = ""
    by: str = ""
    channel: str = ""
    assurance: str = ""
    after_ms: int = 0


@dataclass(slots=True)
class Visit:
    """One stay in an activity: what its definition asked for and what was reported.

    `asked` and `asked_in_loops` are steps, `never_asked` questions that applied, `never_started` workflows that it triggers.
    """

    activity: str
    name: str
    entered_at: int
    left_at: int | None = None
    asked: list[str] = field(default_factory=list)
    asked_in_loops: list[str] = field(default_factory=list)
    done: list[dict[str, str]] = field(default_factory=list)
    manifest_given: bool = False
    answers: list[AnswerGiven] = field(default_factory=list)
    never_asked: list[str] = field(default_factory=list)
    never_started: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)


@dataclass(slots=True)
class RefusedCall:
    """A call that was refused."""

    at: int
    tool: str
    agent: str
    reason: str


@dataclass(slots=True)
class Report:
    """A session from its first event to its last. `set_by` says of every variable who gave it its value.

    `found_in`: the place that its definition came from, empty where that was not noted.

    `ended_unchecked_by`: who has ended it over which channel when its definition was gone, where that is how it ended.
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
    agents: list[str] = field(default_factory=list)
    visits: list[Visit] = field(default_factory=list)
    refused: list[RefusedCall] = field(default_factory=list)
    variables: dict[str, Any] = field(default_factory=dict)
    set_by: dict[str, str] = field(default_factory=dict)
    never_entered: list[str] = field(default_factory=list)

    @property
    def completed(self) -> bool:
        return self.ended_at is not None

    @property
    def differences(self) -> list[str]:
        return [f"{visit.activity}: {text}" for visit in self.visits for text in visit.differences]
