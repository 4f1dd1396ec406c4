"""Rules about checkpoints and loops: questions that are asked, answers that exist, repetitions that stop."""

from __future__ import annotations

from collections.abc import Iterator

from fidelio.definitions.flow import steps_of
from fidelio.definitions.lint.rules import Problem, near, rule
from fidelio.definitions.lint.subject import Subject
from fidelio.definitions.models import Loop


@rule("unresolved-checkpoint", "error")
def unresolved_checkpoint(subject: Subject) -> Iterator[Problem]:
    """A step waits for a checkpoint that its activity does not have. A run stops at this step."""
    for part in subject.activities:
        known = [checkpoint.id for checkpoint in part.activity.checkpoints]
        for step, path in steps_of(part.activity):
            if step.checkpoint and step.checkpoint not in known:
                sentence = (
                    f"Step {step.id} waits for the checkpoint {step.checkpoint!r}, which {part.activity.id} does not have."
                )
                remedy = near(step.checkpoint, known) or "Add the checkpoint to the activity, or delete the line."
                yield Problem(part.source, (*path, "checkpoint"), sentence, remedy)


@rule("unreached-checkpoint", "warning")
def unreached_checkpoint(subject: Subject) -> Iterator[Problem]:
    """No step names this checkpoint, although other checkpoints of the activity are named by steps; it is probably never asked.
    An activity in which no step names a checkpoint asks them in another way, and is left alone.
    """
    for part in subject.activities:
        used = {step.checkpoint for step, _ in steps_of(part.activity) if step.checkpoint}
        for index, checkpoint in enumerate(part.activity.checkpoints if used else ()):
            if checkpoint.id not in used:
                sentence = f"No step of {part.activity.id} leads to the checkpoint {checkpoint.id}."
                remedy = f"Add `checkpoint: {checkpoint.id}` to the step before which it is to be asked."
                yield Problem(part.source, ("checkpoints", index, "id"), sentence, remedy)


@rule("unknown-default-option", "error")
def unknown_default_option(subject: Subject) -> Iterator[Problem]:
    """The default of a checkpoint is not among its options, so nothing can be chosen when time runs out."""
    for part in subject.activities:
        for index, checkpoint in enumerate(part.activity.checkpoints):
            options = [option.id for option in checkpoint.options]
            if checkpoint.default_option is not None and checkpoint.default_option not in options:
                sentence = (
                    f"The default of checkpoint {checkpoint.id}, {checkpoint.default_option!r}, is not one of its options."
                )
                remedy = near(checkpoint.default_option, options) or f"Its options are {', '.join(options)}."
                yield Problem(part.source, ("checkpoints", index, "defaultOption"), sentence, remedy)


@rule("idle-timer", "warning")
def idle_timer(subject: Subject) -> Iterator[Problem]:
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
                yield Problem(part.source, path, sentence, "Write `blocking: false`, or delete the timer.")
            elif checkpoint.default_option is None:
                sentence = f"Checkpoint {checkpoint.id} has a timer but no option to choose when time runs out."
                yield Problem(part.source, path, sentence, "Add `defaultOption`, or delete the timer.")


@rule("unbounded-loop", "warning")
def unbounded_loop(subject: Subject) -> Iterator[Problem]:
    """A loop does not say when it is over: a `while` or `doWhile` without a condition and without `maxIterations`, a `forEach`
    without `over`. It is cut off after 100 passes, which is hardly what is meant.
    """
    for part in subject.activities:
        for index, loop in enumerate(part.activity.loops):
            if reason := _endless(loop):
                sentence = f"Loop {loop.id} {reason}."
                remedy = "Name the list in `over`." if loop.type == "forEach" else "Add a condition or `maxIterations`."
                yield Problem(part.source, ("loops", index, "type"), sentence, remedy)


def _endless(loop: Loop) -> str:
    if loop.type == "forEach":
        return "" if loop.over else "does not say which list it goes over"
    bounded = loop.condition or loop.break_condition or "max_iterations" in loop.model_fields_set
    return "" if bounded else "does not say when it ends"
