"""What becomes of an answer to a checkpoint: taken, confirmed because it was given before, or refused with the reason.

The clock runs from the moment the question was put on record, in milliseconds. An asking has one answer: the same again is
confirmed, another one is refused. What a model passes on is not taken where a person is demanded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from fidelio.definitions.conditions import holds
from fidelio.engine import phrases
from fidelio.engine.checkpoints import demands_person, effect_of, find_checkpoint
from fidelio.engine.condition_text import text_of
from fidelio.engine.problems import Refusal
from fidelio.engine.scope import told
from fidelio.engine.state import Answer, Asked, Mode, OpenCheckpoint, Record

if TYPE_CHECKING:
    from fidelio.definitions.models import Checkpoint, Workflow

DEFAULT_MIN_RESPONSE_MS = 3_000


class Choice(msgspec.Struct, frozen=True):
    """What the caller gave. False counts as not given, as does None; an empty option is given, and wrong."""

    option_id: str | None = None
    auto_advance: bool | None = None
    condition_not_met: bool | None = None

    @property
    def mode(self) -> Mode | None:
        """The one way of answering that was chosen; None when it was not exactly one."""
        given: list[Mode] = []
        if self.option_id is not None:
            given.append("option")
        if self.auto_advance:
            given.append("auto_advance")
        if self.condition_not_met:
            given.append("condition_not_met")
        return given[0] if len(given) == 1 else None


class Circumstances(msgspec.Struct, frozen=True):
    """How the answer comes in. `relayed`: through the model. `demands_person`: the server wants people for everything."""

    now: int
    relayed: bool = True
    demands_person: bool = False
    min_response_ms: int = DEFAULT_MIN_RESPONSE_MS


class Resolution(msgspec.Struct, frozen=True):
    """A good answer. `repeated`: it is on record already and nothing is to be written."""

    asked: Asked
    mode: Mode
    option: str = ""
    effect: dict[str, Any] = msgspec.field(default_factory=dict)
    request: str = ""
    after_ms: int = 0
    repeated: bool = False

    @property
    def dismissed(self) -> bool:
        return self.mode == "condition_not_met"

    def body(self, *, by: str, channel: str, assurance: str) -> dict[str, Any]:
        """The body of the event that puts the answer on record."""
        what = {"request": self.request, "key": self.asked.key, "mode": self.mode, "option": self.option}
        return {**what, "effect": self.effect, "by": by, "channel": channel, "assurance": assurance, "after_ms": self.after_ms}


def resolve(
    workflow: Workflow,
    record: Record,
    choice: Choice,
    how: Circumstances,
    *,
    asked: Asked | None = None,
    earlier: Answer | None = None,
) -> Resolution | Refusal:
    """Decides on an answer to `asked`, or to the question that waits.

    `earlier` is the answer to an asking that the record no longer holds, when the caller has found one.
    """
    mode = choice.mode
    if mode is None:
        return Refusal("checkpoint.mode", phrases.EXACTLY_ONE)
    asked = asked or (record.waiting.asked if record.waiting else None)
    given = earlier or (record.answer_for(asked) if asked else None)
    if given is not None:
        return _again(given, choice, mode)
    waiting = record.waiting_for(asked) if asked else None
    if waiting is None:
        return Refusal("checkpoint.not-active", phrases.NO_ACTIVE_CHECKPOINT, "The worker yields the checkpoint first.")
    activity = workflow.activity(waiting.activity)
    checkpoint = find_checkpoint(activity, waiting.checkpoint) if activity is not None else None
    if checkpoint is None:
        remedy = f"Its definition has changed. It can be answered as it was asked: fidelio answer {waiting.request} OPTION."
        return Refusal("checkpoint.not-found", phrases.checkpoint_not_found(waiting.checkpoint, waiting.activity), remedy)
    return _weigh(_Question(workflow, record, checkpoint, waiting), choice, mode, how)


class _Question(msgspec.Struct, frozen=True):
    workflow: Workflow
    record: Record
    checkpoint: Checkpoint
    waiting: OpenCheckpoint

    def demands_person(self, how: Circumstances) -> bool:
        return self.waiting.person or demands_person(self.workflow, self.checkpoint, server=how.demands_person)


def _again(given: Answer, choice: Choice, mode: Mode) -> Resolution | Refusal:
    same = choice.option_id == given.option != "" if mode == "option" else mode == given.mode
    if not same:
        answer = given.option or "condition_not_met"
        return Refusal("checkpoint.answered", phrases.answered_otherwise(given.checkpoint, answer))
    return Resolution(given.asked, given.mode, given.option, given.effect, repeated=True)


def _weigh(question: _Question, choice: Choice, mode: Mode, how: Circumstances) -> Resolution | Refusal:
    elapsed = max(0, how.now - question.waiting.yielded_at)
    if mode == "condition_not_met":
        option, refusal = "", _cannot_dismiss(question, how)
    elif mode == "auto_advance":
        option, refusal = question.checkpoint.default_option or "", _cannot_advance(question, how, elapsed)
    else:
        option, refusal = choice.option_id or "", _cannot_choose(question, choice.option_id or "", how, elapsed)
    if refusal is not None:
        return refusal
    chosen = next((known for known in question.checkpoint.options if known.id == option), None)
    effect = effect_of(chosen.effect) if chosen is not None else {}
    return Resolution(question.waiting.asked, mode, option, effect, question.waiting.request, elapsed)


def _cannot_choose(question: _Question, option: str, how: Circumstances, elapsed: int) -> Refusal | None:
    if (refusal := _invalid_option(question.checkpoint, option)) is not None:
        return refusal
    if how.relayed and question.demands_person(how):
        return _needs_person(question)
    if how.relayed and elapsed < how.min_response_ms:
        remedy = "Present the checkpoint to the user before responding."
        return Refusal("checkpoint.too-fast", phrases.too_fast(elapsed, how.min_response_ms), remedy)
    return None


def _cannot_advance(question: _Question, how: Circumstances, elapsed: int) -> Refusal | None:
    checkpoint = question.checkpoint
    reasons = ["it is blocking"] if checkpoint.blocking else []
    if checkpoint.default_option is None or checkpoint.auto_advance_ms is None:
        reasons.append("missing defaultOption or autoAdvanceMs")
    if reasons or checkpoint.auto_advance_ms is None:
        remedy = "It takes an explicit option_id from the user."
        return Refusal("checkpoint.blocking", phrases.cannot_auto_advance(checkpoint.id, reasons), remedy)
    if (refusal := _invalid_option(checkpoint, checkpoint.default_option or "")) is not None:
        return refusal
    if question.demands_person(how):
        return _needs_person(question)
    if elapsed < checkpoint.auto_advance_ms:
        return Refusal("checkpoint.too-early", phrases.too_early(checkpoint.id, elapsed, checkpoint.auto_advance_ms))
    return None


def _cannot_dismiss(question: _Question, how: Circumstances) -> Refusal | None:
    checkpoint = question.checkpoint
    if checkpoint.condition is None:
        return Refusal("checkpoint.no-condition", phrases.no_condition(checkpoint.id))
    truth = holds(checkpoint.condition, told(question.workflow, question.record), told=True)
    if truth is True:
        return Refusal("checkpoint.condition-met", phrases.condition_met(checkpoint.id, text_of(checkpoint.condition)))
    # Otherwise a model could wave away the question that only a person may answer.
    person = how.relayed and question.demands_person(how)
    return _needs_person(question) if person and truth is None else None


def _needs_person(question: _Question) -> Refusal:
    remedy = f"A person answers it: fidelio answer {question.waiting.request} OPTION."
    return Refusal("checkpoint.person", phrases.needs_person(question.checkpoint.id), remedy)


def _invalid_option(checkpoint: Checkpoint, option: str) -> Refusal | None:
    valid = [known.id for known in checkpoint.options]
    return None if option in valid else Refusal("checkpoint.option", phrases.invalid_option(option, checkpoint.id, valid))
