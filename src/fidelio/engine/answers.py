"""Decide on an answer to a checkpoint: accept it, confirm that it is already recorded, or refuse it.

Elapsed time is counted in milliseconds from the event that opened the checkpoint. Each instance of a checkpoint has one answer:
the same answer again is confirmed, a different one is refused. An answer relayed by a model is refused where the checkpoint
demands a person.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from fidelio.definitions.conditions import holds, render_condition
from fidelio.engine import phrases
from fidelio.engine.checkpoints import (
    collect_instance_values,
    demands_person,
    demands_proof,
    encode_effect,
    find_checkpoint,
    list_values_at_questions,
)
from fidelio.engine.scope import collect_reported_values, restore_replaced
from fidelio.engine.state import AnswerMode, CheckpointAnswer, CheckpointInstance, OpenCheckpoint, Record, Refusal
from fidelio.errors import Hint

if TYPE_CHECKING:
    from fidelio.definitions.models import Checkpoint, Workflow

DEFAULT_MIN_RESPONSE_MS = 3_000


class AnswerChoice(msgspec.Struct, frozen=True):
    """The arguments of an answer. False and None count as absent; an empty option id is present, and invalid."""

    option_id: str | None = None
    auto_advance: bool | None = None
    condition_not_met: bool | None = None

    @property
    def mode(self) -> AnswerMode | None:
        """The answer mode that the arguments select; None if they select none or several."""
        modes: list[AnswerMode] = []
        if self.option_id is not None:
            modes.append("option")
        if self.auto_advance:
            modes.append("auto_advance")
        if self.condition_not_met:
            modes.append("condition_not_met")
        return modes[0] if len(modes) == 1 else None


class AnswerContext(msgspec.Struct, frozen=True):
    """How and when the answer arrives. `relayed`: through the model. `demands_person`: the server demands people for all
    answers.
    """

    now: int
    relayed: bool = True
    demands_person: bool = False
    min_response_ms: int = DEFAULT_MIN_RESPONSE_MS


class Resolution(msgspec.Struct, frozen=True):
    """An accepted answer. `repeated`: it is already recorded, so there is no new event."""

    instance: CheckpointInstance
    mode: AnswerMode
    option: str = ""
    effect: dict[str, Any] = msgspec.field(default_factory=dict)
    request: str = ""
    after_ms: int = 0
    repeated: bool = False

    @property
    def dismissed(self) -> bool:
        return self.mode == "condition_not_met"

    def body(self, *, by: str, channel: str, assurance: str) -> dict[str, Any]:
        """The body of the event that records the answer."""
        answer = {"request": self.request, "key": self.instance.key, "mode": self.mode, "option": self.option}
        return {
            **answer,
            "effect": self.effect,
            "by": by,
            "channel": channel,
            "assurance": assurance,
            "after_ms": self.after_ms,
        }


def resolve_answer(
    workflow: Workflow,
    record: Record,
    choice: AnswerChoice,
    context: AnswerContext,
    *,
    instance: CheckpointInstance | None = None,
    earlier: CheckpointAnswer | None = None,
) -> Resolution | Refusal:
    """Decide on an answer to `instance`, or to the checkpoint that blocks the session.

    `earlier` is the recorded answer to an instance that the record no longer holds, if the caller has found one.
    """
    mode = choice.mode
    if mode is None:
        return Refusal("checkpoint.mode", phrases.ANSWER_MODE_REQUIRED)
    instance = instance or (record.waiting.instance if record.waiting else None)
    recorded = earlier or (record.find_answer_of(instance) if instance else None)
    if recorded is not None:
        return _compare_with_recorded(recorded, choice, mode)
    waiting = record.find_open(instance) if instance else None
    if waiting is None:
        return Refusal("checkpoint.not-active", phrases.NO_ACTIVE_CHECKPOINT, "The worker yields the checkpoint first.")
    activity = workflow.activity(waiting.activity)
    checkpoint = find_checkpoint(activity, waiting.checkpoint) if activity is not None else None
    if checkpoint is None:
        remedy = Hint("Its definition has changed. It can still be answered as it was asked: ", waiting.answer_command, ".")
        return Refusal("checkpoint.not-found", phrases.checkpoint_not_found(waiting.checkpoint, waiting.activity), remedy)
    return _decide(_OpenRequest(workflow, record, checkpoint, waiting), choice, mode, context)


class _OpenRequest(msgspec.Struct, frozen=True):
    workflow: Workflow
    record: Record
    checkpoint: Checkpoint
    waiting: OpenCheckpoint

    def demands_person(self, context: AnswerContext) -> bool:
        demanded = self.waiting.person or self.record.person
        return demanded or demands_person(self.workflow, self.checkpoint, server=context.demands_person)

    def demands_proof(self) -> bool:
        """Whether the answer has to be signed, which only the inbox can check."""
        return demands_proof(self.workflow, self.checkpoint)

    def was_inapplicable(self) -> bool:
        """Whether the condition is false without what agents have reported while the checkpoint waits. Defaults count.

        In a loop it has to be false without what they have reported since any earlier question of the loop, too.
        """
        condition, before = self.checkpoint.condition, restore_replaced(self.record, self.waiting.replaced)
        at_yield = collect_instance_values(self.workflow, before, self.waiting.instance)
        earlier = list_values_at_questions(self.workflow, self.record, self.waiting.instance)
        return all(holds(condition, values, reported_only=True) is False for values in (at_yield, *earlier))


def _compare_with_recorded(recorded: CheckpointAnswer, choice: AnswerChoice, mode: AnswerMode) -> Resolution | Refusal:
    same = choice.option_id == recorded.option != "" if mode == "option" else mode == recorded.mode
    if not same:
        answer = recorded.option or "condition_not_met"
        return Refusal("checkpoint.answered", phrases.already_answered(recorded.checkpoint, answer))
    return Resolution(recorded.instance, recorded.mode, recorded.option, recorded.effect, repeated=True)


def _decide(question: _OpenRequest, choice: AnswerChoice, mode: AnswerMode, context: AnswerContext) -> Resolution | Refusal:
    elapsed = max(0, context.now - question.waiting.yielded_at)
    if mode == "condition_not_met":
        option, refusal = "", _check_dismissal(question, context)
    elif mode == "auto_advance":
        option, refusal = question.checkpoint.default_option or "", _check_auto_advance(question, context, elapsed)
    else:
        option, refusal = choice.option_id or "", _check_option(question, choice.option_id or "", context, elapsed)
    if refusal is not None:
        return refusal
    chosen = next((known for known in question.checkpoint.options if known.id == option), None)
    effect = encode_effect(chosen.effect) if chosen is not None else {}
    return Resolution(question.waiting.instance, mode, option, effect, question.waiting.request, elapsed)


def _check_option(question: _OpenRequest, option: str, context: AnswerContext, elapsed: int) -> Refusal | None:
    if (refusal := _check_option_id(question.checkpoint, option)) is not None:
        return refusal
    if (context.relayed and question.demands_person(context)) or question.demands_proof():
        return _refuse_without_person(question)
    if context.relayed and elapsed < context.min_response_ms:
        remedy = "Present the checkpoint to the user before responding."
        return Refusal("checkpoint.too-fast", phrases.response_too_fast(elapsed, context.min_response_ms), remedy)
    return None


def _check_auto_advance(question: _OpenRequest, context: AnswerContext, elapsed: int) -> Refusal | None:
    checkpoint = question.checkpoint
    reasons = ["it is blocking"] if checkpoint.blocking else []
    if checkpoint.default_option is None or checkpoint.auto_advance_ms is None:
        reasons.append("missing defaultOption or autoAdvanceMs")
    if reasons or checkpoint.auto_advance_ms is None:
        remedy = "It takes an explicit option_id from the user."
        return Refusal("checkpoint.blocking", phrases.cannot_auto_advance(checkpoint.id, reasons), remedy)
    if (refusal := _check_option_id(checkpoint, checkpoint.default_option or "")) is not None:
        return refusal
    if question.demands_person(context):
        return _refuse_without_person(question)
    if elapsed < checkpoint.auto_advance_ms:
        return Refusal(
            "checkpoint.too-early", phrases.auto_advance_too_early(checkpoint.id, elapsed, checkpoint.auto_advance_ms)
        )
    return None


def _check_dismissal(question: _OpenRequest, context: AnswerContext) -> Refusal | None:
    checkpoint = question.checkpoint
    if checkpoint.condition is None:
        return Refusal("checkpoint.no-condition", phrases.no_condition(checkpoint.id))
    truth = holds(checkpoint.condition, collect_reported_values(question.workflow, question.record), reported_only=True)
    if truth is True:
        return Refusal("checkpoint.condition-met", phrases.condition_met(checkpoint.id, render_condition(checkpoint.condition)))
    # Otherwise a model could dismiss a checkpoint that only a person may answer, by what it reports while the person is asked.
    person = (context.relayed and question.demands_person(context)) or question.demands_proof()
    return _refuse_without_person(question) if person and not question.was_inapplicable() else None


def _refuse_without_person(question: _OpenRequest) -> Refusal:
    remedy = Hint("A person answers it: ", question.waiting.answer_command, ".")
    return Refusal("checkpoint.person", phrases.needs_person(question.checkpoint.id), remedy)


def _check_option_id(checkpoint: Checkpoint, option: str) -> Refusal | None:
    valid = [known.id for known in checkpoint.options]
    return None if option in valid else Refusal("checkpoint.option", phrases.invalid_option(option, checkpoint.id, valid))
