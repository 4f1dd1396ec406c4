"""What the record of a session consists of.

A record is written with every event, so it stays small: it holds where the session stands and what still matters there, and
no history. Whoever wants the past reads the events. Every call copies and writes it several times over, which is why its parts
are structs and what has its default value is not written at all.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Status = Literal["active", "blocked", "completed"]
Fidelity = Literal["advise", "enforce"]
Mode = Literal["option", "auto_advance", "condition_not_met"]


class _Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value that never changes."""


class Asked(_Part, frozen=True):
    """One asking of a checkpoint: it is answered once per visit of its activity and pass of its loop (0 outside loops)."""

    checkpoint: str
    activity: str
    visit: int
    iteration: int = 0

    @property
    def key(self) -> str:
        """Names this asking in its session, for good."""
        return f"{self.activity}/{self.checkpoint}#{self.visit}" + (f".{self.iteration}" if self.iteration else "")


class OpenCheckpoint(_Part, frozen=True):
    """A question that waits for its answer. The clock of the answer runs from `yielded_at`.

    `person`: only a person may answer it. That was said when it was asked, and nobody takes it back while it waits.
    """

    checkpoint: str
    activity: str
    visit: int
    request: str
    yielded_at: int
    iteration: int = 0
    person: bool = False

    @property
    def asked(self) -> Asked:
        return Asked(self.checkpoint, self.activity, self.visit, self.iteration)


class Answer(_Part, frozen=True):
    """The one answer that an asking got. A dismissed question has no option.

    `resumed`: the worker said that it goes on with it. `behind`: the work of a loop went on after it, said or not.
    """

    checkpoint: str
    activity: str
    visit: int
    option: str
    effect: dict[str, Any]
    by: str
    channel: str
    assurance: str
    answered_at: int
    resumed: bool = False
    iteration: int = 0
    mode: Mode = "option"
    request: str = ""
    behind: bool = False

    @property
    def asked(self) -> Asked:
        return Asked(self.checkpoint, self.activity, self.visit, self.iteration)


class Pass(_Part, frozen=True):
    """One pass of a loop: its number, what it goes over, and how far it has come."""

    loop: str
    iteration: int
    items: tuple[Any, ...] | None = None
    at: int = 0
    done: tuple[str, ...] = ()
    entered: int = 0  # how many of the loop's activities this pass has reached

    @property
    def item(self) -> Any:
        return self.items[self.iteration - 1] if self.items and self.iteration <= len(self.items) else None


class Place(_Part, frozen=True):
    """A visit of an activity. `at` is the first step not yet done or passed over; `changed` is what was set meanwhile."""

    activity: str = ""
    visit: int = 0
    at: int = 0
    done: tuple[str, ...] = ()
    running: Pass | None = None
    loops_over: tuple[str, ...] = ()
    answers: tuple[Answer, ...] = ()
    changed: tuple[str, ...] = ()


class Parent(_Part, frozen=True):
    """The session that started this one, and where it stood."""

    session: str
    workflow: str
    activity: str = ""
    version: str = ""


class Child(_Part, frozen=True):
    """A child that this session waits for, and the variables that come back from it."""

    session: str
    workflow: str
    step: str = ""
    pass_context: tuple[str, ...] = ()


class Reported(_Part, frozen=True):
    """That a manifest was handed in for an activity, and what was found in it."""

    visit: int
    steps: int
    warnings: int


class Record(_Part, frozen=True):
    """Where a session stands. `seq` is the last event that is folded in, `since` the first that no trace token covers yet.

    `variables` holds what somebody set, and `set_by` who: declared defaults are not stored. `forced` is the activity that an
    answer leads to. `outer` are the visits whose loops go through the current activity, the innermost last. `found_in` is the
    place that the definition came from, empty in records that were begun before that was noted.
    """

    seq: int = 0
    since: int = 1
    status: Status = "active"
    workflow: str = ""
    version: str = ""
    definition: str = ""
    found_in: str = ""
    fidelity: Fidelity = "advise"
    here: Place = Place()
    outer: tuple[Place, ...] = ()
    visits: int = 0
    variables: dict[str, Any] = msgspec.field(default_factory=dict)
    set_by: dict[str, str] = msgspec.field(default_factory=dict)
    completed: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()
    open: OpenCheckpoint | None = None
    armed: tuple[OpenCheckpoint, ...] = ()
    last: Answer | None = None
    forced: str = ""
    condition: str = ""
    skill: str = ""
    skill_owner: str = ""
    parent: Parent | None = None
    children: tuple[Child, ...] = ()
    unverified: bool = False
    claims_to_continue: str = ""
    reported: dict[str, Reported] = msgspec.field(default_factory=dict)

    @property
    def activity(self) -> str:
        return self.here.activity

    @property
    def visit(self) -> int:
        return self.here.visit

    @property
    def answers(self) -> tuple[Answer, ...]:
        """The answers of the present visit, one for each checkpoint: the newest."""
        return self.here.answers

    @property
    def waiting(self) -> OpenCheckpoint | None:
        """The question that holds the session: the yielded one, else the first of those that entering armed."""
        return self.open or (self.armed[0] if self.armed else None)

    @property
    def pending(self) -> tuple[OpenCheckpoint, ...]:
        """Every question that waits, in the order in which they hold the session."""
        return (self.open, *self.armed) if self.open is not None else self.armed

    @property
    def suspended_by(self) -> str:
        """The child that has to end before this session moves on."""
        return self.children[0].session if self.children else ""

    def answer_to(self, checkpoint: str) -> Answer | None:
        """The newest answer given in the present visit, if there is one."""
        return next((answer for answer in self.here.answers if answer.checkpoint == checkpoint), None)

    def answer_for(self, asked: Asked) -> Answer | None:
        """The answer to exactly this asking, if the record still holds it."""
        known = (*self.here.answers, *((self.last,) if self.last else ()))
        return next((answer for answer in known if answer.asked == asked), None)

    def waiting_for(self, asked: Asked) -> OpenCheckpoint | None:
        """This asking, while it waits for its answer."""
        return next((one for one in self.pending if one.asked == asked), None)

    def pending_as(self, checkpoint: str) -> OpenCheckpoint | None:
        """The question of this checkpoint, while it waits."""
        return next((one for one in self.pending if one.checkpoint == checkpoint), None)
