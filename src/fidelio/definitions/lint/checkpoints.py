"""Lint rules for checkpoints and loops."""

from __future__ import annotations

from collections.abc import Iterator

from fidelio.definitions.flow import list_steps
from fidelio.definitions.lint.rules import LintProblem, rule, suggest_name
from fidelio.definitions.lint.subject import LintSubject
from fidelio.definitions.models import Loop


@rule("unresolved-checkpoint", "error")
def check_unresolved_checkpoint(subject: LintSubject) -> Iterator[LintProblem]:
    """A step refers to a checkpoint that its activity does not have. A session stops at this step."""
    for entry in subject.activities:
        known = [checkpoint.id for checkpoint in entry.activity.checkpoints]
        for step, path in list_steps(entry.activity):
            if step.checkpoint and step.checkpoint not in known:
                sentence = (
                    f"Step {step.id} waits for the checkpoint {step.checkpoint!r}, which {entry.activity.id} does not have."
                )
                remedy = suggest_name(step.checkpoint, known) or "Add the checkpoint to the activity, or delete the line."
                yield LintProblem(entry.source, (*path, "checkpoint"), sentence, remedy)


@rule("unreached-checkpoint", "warning")
def check_unreached_checkpoint(subject: LintSubject) -> Iterator[LintProblem]:
    """No step names this checkpoint, although steps name other checkpoints of the activity, so it is probably never presented.
    Activities in which no step names a checkpoint are not checked.
    """
    for entry in subject.activities:
        used = {step.checkpoint for step, _ in list_steps(entry.activity) if step.checkpoint}
        for index, checkpoint in enumerate(entry.activity.checkpoints if used else ()):
            if checkpoint.id not in used:
                sentence = f"No step of {entry.activity.id} leads to the checkpoint {checkpoint.id}."
                remedy = f"Add `checkpoint: {checkpoint.id}` to the step before which it is to be asked."
                yield LintProblem(entry.source, ("checkpoints", index, "id"), sentence, remedy)


@rule("unknown-default-option", "error")
def check_unknown_default_option(subject: LintSubject) -> Iterator[LintProblem]:
    """The default of a checkpoint is not among its options, so no option can be chosen when its timer expires."""
    for entry in subject.activities:
        for index, checkpoint in enumerate(entry.activity.checkpoints):
            options = [option.id for option in checkpoint.options]
            if checkpoint.default_option is not None and checkpoint.default_option not in options:
                sentence = (
                    f"The default of checkpoint {checkpoint.id}, {checkpoint.default_option!r}, is not one of its options."
                )
                remedy = suggest_name(checkpoint.default_option, options) or f"Its options are {', '.join(options)}."
                yield LintProblem(entry.source, ("checkpoints", index, "defaultOption"), sentence, remedy)


@rule("idle-timer", "warning")
def check_idle_timer(subject: LintSubject) -> Iterator[LintProblem]:
    """A checkpoint has `autoAdvanceMs` but never advances by itself: it is blocking (which it is unless the file says
    otherwise), or it has no `defaultOption`.
    """
    for entry in subject.activities:
        for index, checkpoint in enumerate(entry.activity.checkpoints):
            if checkpoint.auto_advance_ms is None:
                continue
            path = ("checkpoints", index, "autoAdvanceMs")
            if checkpoint.blocking:
                sentence = f"Checkpoint {checkpoint.id} has a timer but is blocking, so the timer never answers it."
                yield LintProblem(entry.source, path, sentence, "Write `blocking: false`, or delete the timer.")
            elif checkpoint.default_option is None:
                sentence = f"Checkpoint {checkpoint.id} has a timer but no option to choose when the timer expires."
                yield LintProblem(entry.source, path, sentence, "Add `defaultOption`, or delete the timer.")


@rule("unbounded-loop", "warning")
def check_unbounded_loop(subject: LintSubject) -> Iterator[LintProblem]:
    """A loop has no end: a `while` or `doWhile` without a condition and without `maxIterations`, or a `forEach` without `over`.
    It is stopped after 100 iterations, which is probably not intended.
    """
    for entry in subject.activities:
        for index, loop in enumerate(entry.activity.loops):
            if reason := _explain_endless(loop):
                sentence = f"Loop {loop.id} {reason}."
                remedy = "Name the list in `over`." if loop.type == "forEach" else "Add a condition or `maxIterations`."
                yield LintProblem(entry.source, ("loops", index, "type"), sentence, remedy)


def _explain_endless(loop: Loop) -> str:
    if loop.type == "forEach":
        return "" if loop.over else "does not say which list it goes over"
    bounded = loop.condition or loop.break_condition or "max_iterations" in loop.model_fields_set
    return "" if bounded else "does not say when it ends"
