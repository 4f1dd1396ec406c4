"""Lint rules for checkpoints and loops."""

from __future__ import annotations

from collections.abc import Iterator

from fidelio.definitions.flow import list_steps
from fidelio.definitions.lint.rules import LintProblem, rule, suggest_name
from fidelio.definitions.lint.subject import LintSubject
from fidelio.definitions.models import Loop


@rule("unresolved-checkpoint", "error")
def unresolved_checkpoint(subject: LintSubject) -> Iterator[LintProblem]:
    """A step waits for a checkpoint that its activity does not have. A run stops at this step."""
    for part in subject.activities:
        known = [checkpoint.id for checkpoint in part.activity.checkpoints]
        for step, path in list_steps(part.activity):
            if step.checkpoint and step.checkpoint not in known:
                sentence = (
                    f"Step {step.id} waits for the checkpoint {step.checkpoint!r}, which {part.activity.id} does not have."
                )
                remedy = suggest_name(step.checkpoint, known) or "Add the checkpoint to the activity, or delete the line."
                yield LintProblem(part.source, (*path, "checkpoint"), sentence, remedy)


@rule("unreached-checkpoint", "warning")
def unreached_checkpoint(subject: LintSubject) -> Iterator[LintProblem]:
    """No step names this checkpoint, although other checkpoints of the activity are named by steps; it is probably never asked.
    An activity in which no step names a checkpoint asks them in another way, and is left alone.
    """
    for part in subject.activities:
        used = {step.checkpoint for step, _ in list_steps(part.activity) if step.checkpoint}
        for index, checkpoint in enumerate(part.activity.checkpoints if used else ()):
            if checkpoint.id not in used:
                sentence = f"No step of {part.activity.id} leads to the checkpoint {checkpoint.id}."
                remedy = f"Add `checkpoint: {checkpoint.id}` to the step before which it is to be asked."
                yield LintProblem(part.source, ("checkpoints", index, "id"), sentence, remedy)


@rule("unknown-default-option", "error")
def unknown_default_option(subject: LintSubject) -> Iterator[LintProblem]:
    """The default of a checkpoint is not among its options, so nothing can be chosen when time runs out."""
    for part in subject.activities:
        for index, checkpoint in enumerate(part.activity.checkpoints):
            options = [option.id for option in checkpoint.options]
            if checkpoint.default_option is not None and checkpoint.default_option not in options:
                sentence = (
                    f"The default of checkpoint {checkpoint.id}, {checkpoint.default_option!r}, is not one of its options."
                )
                remedy = suggest_name(checkpoint.default_option, options) or f"Its options are {', '.join(options)}."
                yield LintProblem(part.source, ("checkpoints", index, "defaultOption"), sentence, remedy)


@rule("idle-timer", "warning")
def idle_timer(subject: LintSubject) -> Iterator[LintProblem]:
    """A checkpoint has `autoAdvanceMs` but never advances by itself: it is blocking (which it is unless the file says
    otherwise), or it has no `defaultOption`.
    """
    for part in subject.activities:
        for index, checkpoint in enumerate(part.activity.checkpoints):
            if checkpoint.auto_advance_ms is None:
                continue
            path = ("checkpoints", index, "autoAdvanceMs")
            if checkpoint.blocking:
                sentence = f"Checkpoint {checkpoint.id} has a timer but is blocking, so it waits for an answer for ever."
                yield LintProblem(part.source, path, sentence, "Write `blocking: false`, or delete the timer.")
            elif checkpoint.default_option is None:
                sentence = f"Checkpoint {checkpoint.id} has a timer but no option to choose when time runs out."
                yield LintProblem(part.source, path, sentence, "Add `defaultOption`, or delete the timer.")


@rule("unbounded-loop", "warning")
def unbounded_loop(subject: LintSubject) -> Iterator[LintProblem]:
    """A loop does not say when it is over: a `while` or `doWhile` without a condition and without `maxIterations`, a `forEach`
    without `over`. It is cut off after 100 passes, which is hardly what is meant.
    """
    for part in subject.activities:
        for index, loop in enumerate(part.activity.loops):
            if reason := _explain_endless(loop):
                sentence = f"Loop {loop.id} {reason}."
                remedy = "Name the list in `over`." if loop.type == "forEach" else "Add a condition or `maxIterations`."
                yield LintProblem(part.source, ("loops", index, "type"), sentence, remedy)


def _explain_endless(loop: Loop) -> str:
    if loop.type == "forEach":
        return "" if loop.over else "does not say which list it goes over"
    bounded = loop.condition or loop.break_condition or "max_iterations" in loop.model_fields_set
    return "" if bounded else "does not say when it ends"
