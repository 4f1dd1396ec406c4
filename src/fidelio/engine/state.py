"""The record of a workflow session as immutable structs, and the problems that rules find in it.

The record is stored with every event, so it stays small: it contains the current position and what still matters there, and no
history, which is in the events. Every call copies and encodes it several times; therefore it consists of msgspec structs, and
default values are not encoded. Field names are stored and must not change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from fidelio.errors import Command, Text

Status = Literal["active", "blocked", "completed", "cancelled"]
Fidelity = Literal["advise", "enforce"]
AnswerMode = Literal["option", "auto_advance", "condition_not_met"]
# The assurances of answers that a person gave.
PERSON_ASSURANCES = frozenset({"elicited", "local", "proven"})


class _Value(msgspec.Struct, frozen=True, omit_defaults=True):
    """Base of all structs of the record."""


class CheckpointInstance(_Value, frozen=True):
    """An instance of a checkpoint: it is answered once in each visit of its activity and iteration of its loop.

    `iteration` is 0 outside of loops.
    """

    checkpoint: str
    activity: str
    visit: int
    iteration: int = 0

    @property
    def key(self) -> str:
        """The permanent name of this instance in its session."""
        return f"{self.activity}/{self.checkpoint}#{self.visit}" + (f".{self.iteration}" if self.iteration else "")


class OpenCheckpoint(_Value, frozen=True):
    """A checkpoint that waits for its answer. Response times are counted from `yielded_at`.

    `person`: only a person may answer it, `proven`: with a signature. Both are fixed when the checkpoint is opened. `replaced`
    has the earlier values, as lists of at most one, of the variables that agents have set since: what an agent reports while a
    person is asked does not count against the question.
    """

    checkpoint: str
    activity: str
    visit: int
    request: str
    yielded_at: int
    iteration: int = 0
    person: bool = False
    replaced: dict[str, list[Any]] = msgspec.field(default_factory=dict)
    proven: bool = False

    @property
    def instance(self) -> CheckpointInstance:
        return CheckpointInstance(self.checkpoint, self.activity, self.visit, self.iteration)

    @property
    def answer_command(self) -> Command:
        """The command with which a person answers it, or that leads to the page where it is signed."""
        return Command("open", f"/inbox/{self.request}") if self.proven else Command("answer", self.request, "OPTION")

    def build_answer(self, body: Mapping[str, Any], time: int) -> CheckpointAnswer:
        """The answer that an event with this body records."""
        return CheckpointAnswer(
            self.checkpoint,
            self.activity,
            self.visit,
            body.get("option", ""),
            body.get("effect") or {},
            body["by"],
            body["channel"],
            body["assurance"],
            time,
            iteration=self.iteration,
            mode=body.get("mode", "option"),
            request=self.request,
        )


class CheckpointAnswer(_Value, frozen=True):
    """The answer to an instance of a checkpoint. A dismissed checkpoint has no option.

    `resumed`: the worker called resume_checkpoint. `behind`: the work of a loop continued after it, with or without that call.
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
    mode: AnswerMode = "option"
    request: str = ""
    behind: bool = False

    @property
    def instance(self) -> CheckpointInstance:
        return CheckpointInstance(self.checkpoint, self.activity, self.visit, self.iteration)

    @property
    def by_person(self) -> bool:
        return self.assurance in PERSON_ASSURANCES


class LoopIteration(_Value, frozen=True):
    """An iteration of a loop: its number, the items of the loop, and its progress."""

    loop: str
    iteration: int
    items: tuple[Any, ...] | None = None
    at: int = 0
    done: tuple[str, ...] = ()
    entered: int = 0  # how many of the loop's activities this iteration has reached

    @property
    def item(self) -> Any:
        return self.items[self.iteration - 1] if self.items and self.iteration <= len(self.items) else None


class LoopAnswers(_Value, frozen=True):
    """The iterations for which a checkpoint of a loop was answered, and how many there were when it was yielded.

    `since` are the variables that agents have set after the newest answer. `replaced` has for each question the values that
    variables had when it was asked, as lists of at most one, if agents have reported others since: such a report does not count
    against the questions of later iterations.
    """

    iterations: tuple[int, ...] = ()
    total: int = 0
    since: tuple[str, ...] = ()
    replaced: tuple[dict[str, list[Any]], ...] = ()


class ActivityVisit(_Value, frozen=True):
    """A visit of an activity. `at` is the first step not done or skipped; `changed` are the variables set in this visit.

    `replaced` has the values before the visit of the variables that agents have set in it, as lists of at most one. `looped`
    are the loops of which an iteration was entered by a move, `in_loops` the answers to their checkpoints, and `started` the
    workflows that triggers have started, one for each child session.
    `loop_items` are the lists of loops that an agent has replaced in this visit, as they were before.
    """

    activity: str = ""
    visit: int = 0
    at: int = 0
    done: tuple[str, ...] = ()
    running: LoopIteration | None = None
    loops_over: tuple[str, ...] = ()
    answers: tuple[CheckpointAnswer, ...] = ()
    changed: tuple[str, ...] = ()
    replaced: dict[str, list[Any]] = msgspec.field(default_factory=dict)
    looped: tuple[str, ...] = ()
    in_loops: dict[str, LoopAnswers] = msgspec.field(default_factory=dict)
    started: tuple[str, ...] = ()
    loop_items: dict[str, list[Any]] = msgspec.field(default_factory=dict)

    def note_request(self, checkpoint: str, iteration: int, total: int) -> ActivityVisit:
        """Note that a checkpoint of a loop was yielded, and how many iterations there were."""
        if not iteration and not total:
            return self
        known = self.in_loops.get(checkpoint, LoopAnswers())
        values = known.replaced if {} in known.replaced else (*known.replaced, {})
        noted = replace(known, total=max(known.total, total), replaced=values)
        return replace(self, in_loops={**self.in_loops, checkpoint: noted})

    def note_iteration(self, checkpoint: str, iteration: int) -> ActivityVisit:
        """Note an answer in an iteration."""
        if not iteration:
            return self
        known = self.in_loops.get(checkpoint, LoopAnswers())
        iterations = (*known.iterations, iteration) if iteration not in known.iterations else known.iterations
        return replace(self, in_loops={**self.in_loops, checkpoint: replace(known, iterations=iterations, since=())})

    def note_variables(self, names: Iterable[str]) -> ActivityVisit:
        """Note that an agent has set variables after the answers to checkpoints of loops."""
        if not self.in_loops:
            return self
        noted = {
            name: replace(known, since=tuple(dict.fromkeys((*known.since, *names)))) for name, known in self.in_loops.items()
        }
        return replace(self, in_loops=noted)


class ParentSession(_Value, frozen=True):
    """The session that started this session, and its activity at that time."""

    session: str
    workflow: str
    activity: str = ""
    version: str = ""


class ChildSession(_Value, frozen=True):
    """A child session that this session waits for, and the variables that it returns."""

    session: str
    workflow: str
    step: str = ""
    pass_context: tuple[str, ...] = ()


class ManifestSummary(_Value, frozen=True):
    """Summary of the manifest that was reported for an activity."""

    visit: int
    steps: int
    warnings: int


class Record(_Value, frozen=True):
    """State of a session. `seq` is the last folded event, `since` the first that no trace token covers yet.

    `variables` contains the values that were set, `set_by` their authors; declared defaults are not stored. `forced` is the
    activity that an answer leads to. `outer` are the visits whose loops run through the current activity, the innermost last.
    `found_in` is the root that the definition was loaded from, empty in records written before that was stored. `loaded` maps
    the skills and resources that the session has loaded to the digests of their stored texts. `person`: only people answer the
    checkpoints of this session, on every server. `agents` are those that made calls, in the order of their first call: the
    short form of a token has the number of one.
    """

    seq: int = 0
    since: int = 1
    status: Status = "active"
    workflow: str = ""
    version: str = ""
    definition: str = ""
    found_in: str = ""
    fidelity: Fidelity = "advise"
    person: bool = False
    here: ActivityVisit = ActivityVisit()
    outer: tuple[ActivityVisit, ...] = ()
    visits: int = 0
    variables: dict[str, Any] = msgspec.field(default_factory=dict)
    set_by: dict[str, str] = msgspec.field(default_factory=dict)
    completed: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()
    open: OpenCheckpoint | None = None
    armed: tuple[OpenCheckpoint, ...] = ()
    last: CheckpointAnswer | None = None
    forced: str = ""
    condition: str = ""
    skill: str = ""
    skill_owner: str = ""
    loaded: dict[str, str] = msgspec.field(default_factory=dict)
    parent: ParentSession | None = None
    children: tuple[ChildSession, ...] = ()
    unverified: bool = False
    claims_to_continue: str = ""
    reported: dict[str, ManifestSummary] = msgspec.field(default_factory=dict)
    agents: tuple[str, ...] = ()

    @property
    def ended(self) -> bool:
        """Whether the session is over: completed by its agent, or cancelled by a person."""
        return self.status in ("completed", "cancelled")

    @property
    def activity(self) -> str:
        return self.here.activity

    @property
    def visit(self) -> int:
        return self.here.visit

    @property
    def answers(self) -> tuple[CheckpointAnswer, ...]:
        """The newest answer to each checkpoint in the current visit."""
        return self.here.answers

    @property
    def waiting(self) -> OpenCheckpoint | None:
        """The checkpoint that blocks the session: the yielded checkpoint, else the first armed checkpoint."""
        return self.open or (self.armed[0] if self.armed else None)

    @property
    def pending(self) -> tuple[OpenCheckpoint, ...]:
        """All open checkpoints, in the order in which they block the session."""
        return (self.open, *self.armed) if self.open is not None else self.armed

    @property
    def suspended_by(self) -> str:
        """The child session that has to end before this session can continue."""
        return self.children[0].session if self.children else ""

    def find_answer(self, checkpoint: str) -> CheckpointAnswer | None:
        """The newest answer to the checkpoint in the current visit."""
        return next((answer for answer in self.here.answers if answer.checkpoint == checkpoint), None)

    def find_answer_of(self, instance: CheckpointInstance) -> CheckpointAnswer | None:
        """The answer to exactly this instance, if the record still contains it."""
        answers = (*self.here.answers, *((self.last,) if self.last else ()))
        return next((answer for answer in answers if answer.instance == instance), None)

    def find_open(self, instance: CheckpointInstance) -> OpenCheckpoint | None:
        """The open checkpoint of exactly this instance."""
        return next((pending for pending in self.pending if pending.instance == instance), None)

    def find_pending(self, checkpoint: str) -> OpenCheckpoint | None:
        """The open instance of the checkpoint."""
        return next((pending for pending in self.pending if pending.checkpoint == checkpoint), None)


class Refusal(msgspec.Struct, frozen=True):
    """Why a call is refused, and what to do instead. `code` is stable."""

    code: str
    sentence: str
    remedy: Text = ""


class Problem(msgspec.Struct, frozen=True):
    """A deviation from the definition.

    `doubt`: the record cannot tell whether it is a deviation. `advisory`: it is a warning at every level.
    """

    code: str
    sentence: str
    remedy: str = ""
    doubt: bool = False
    advisory: bool = False


def list_warnings(problems: Iterable[Problem]) -> list[str]:
    """The warnings of a call at the level `advise`: each problem once, without doubts."""
    return list(dict.fromkeys(problem.sentence for problem in problems if not problem.doubt))


def build_refusal(problems: Sequence[Problem], fidelity: Fidelity) -> Refusal | None:
    """The refusal that follows from these problems, or None. The level `advise` never refuses."""
    distinct = list({problem.sentence: problem for problem in problems if not problem.advisory}.values())
    if fidelity == "advise" or not distinct:
        return None
    sentence = " ".join(problem.sentence for problem in distinct)
    remedy = " ".join(dict.fromkeys(problem.remedy for problem in distinct if problem.remedy))
    return Refusal(distinct[0].code, sentence, remedy)
