"""Lint rules for ids, file names and unknown keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from fidelio.definitions.flow import list_steps
from fidelio.definitions.library.identifiers import check_id
from fidelio.definitions.lint.rules import LintProblem, rule
from fidelio.definitions.lint.subject import ActivitySubject, LintSubject, SourceFile
from fidelio.definitions.models import Definition, unknown_keys
from fidelio.definitions.models.base import Path
from fidelio.errors import BadId

NamedItem = tuple[str, Path]


class _WithId(Protocol):
    """Any part of a definition that has an id."""

    @property
    def id(self) -> str: ...


@rule("duplicate-id", "error")
def duplicate_id(subject: LintSubject) -> Iterator[LintProblem]:
    """Two things of one kind bear the same id: activities of a workflow, steps, checkpoints, loops, decisions and artifacts of
    an activity, options of a checkpoint, branches of a decision, variables and modes of a workflow. Whoever asks for the id
    gets the first; the second can never be reached.
    """
    head = subject.workflow
    yield from _find_duplicates(
        subject.manifest, "variable", ((v.name, ("variables", i, "name")) for i, v in enumerate(head.variables))
    )
    yield from _find_duplicates(subject.manifest, "mode", ((m.id, ("modes", i, "id")) for i, m in enumerate(head.modes)))
    yield from _find_duplicates(subject.manifest, "activity", subject.inline_activities)
    for part in subject.activities:
        yield from _find_duplicates_in_activity(part)


def _find_duplicates_in_activity(part: ActivitySubject) -> Iterator[LintProblem]:
    activity = part.activity
    lists: list[tuple[str, Sequence[_WithId], Path]] = [
        ("step", activity.steps, ("steps",)),
        ("checkpoint", activity.checkpoints, ("checkpoints",)),
        ("loop", activity.loops, ("loops",)),
        ("decision", activity.decisions, ("decisions",)),
        ("artifact", activity.artifacts, ("artifacts",)),
    ]
    lists += [("option", c.options, ("checkpoints", i, "options")) for i, c in enumerate(activity.checkpoints)]
    lists += [("step", loop.steps, ("loops", i, "steps")) for i, loop in enumerate(activity.loops)]
    lists += [("branch", d.branches, ("decisions", i, "branches")) for i, d in enumerate(activity.decisions)]
    for kind, things, path in lists:
        yield from _find_duplicates(part.source, kind, ((thing.id, (*path, i, "id")) for i, thing in enumerate(things)))


def _find_duplicates(source: SourceFile, kind: str, named: Iterable[NamedItem]) -> Iterator[LintProblem]:
    seen: set[str] = set()
    for name, path in named:
        if name in seen:
            yield LintProblem(source, path, f"The {kind} {name!r} is declared twice.", "Rename one of the two, or delete it.")
        seen.add(name)


@rule("repeated-step", "warning")
def repeated_step(subject: LintSubject) -> Iterator[LintProblem]:
    """A step of a loop bears the id of another step of the activity, or of one in another loop. Both are done, the loop after
    the steps, and a report about the id does not say which of the two is meant.
    """
    for part in subject.activities:
        seen: dict[str, Path] = {}
        for step, path in list_steps(part.activity):
            # Twice in the same list is an error, and said by another rule.
            if seen.setdefault(step.id, path[:-1]) != path[:-1]:
                sentence = f"The step {step.id!r} of a loop is also a step outside of that loop."
                yield LintProblem(
                    part.source, (*path, "id"), sentence, "Rename one of the two, or delete the one that is too much."
                )


@rule("bad-id", "error")
def bad_id(subject: LintSubject) -> Iterator[LintProblem]:
    """The id of an activity has separators, leading dots, outer spaces or unprintable characters in it. Such an id is refused
    when somebody asks for it, so the activity can never be entered.
    """
    for part in subject.activities:
        if not _is_valid_id(part.activity.id):
            sentence = f"The activity id {part.activity.id!r} is not valid."
            yield LintProblem(part.source, ("id",), sentence, "Use letters, digits and dashes.")


def _is_valid_id(name: str) -> bool:
    try:
        return check_id(name, "an activity") == name
    except BadId:
        return False


@rule("duplicate-number", "warning")
def duplicate_number(subject: LintSubject) -> Iterator[LintProblem]:
    """Two files of one directory begin with the same number. Their order is then decided by the rest of the name, and a
    resource that is asked for by its number is always the first of the two.
    """
    for files in subject.numbered_files:
        seen: dict[int, str] = {}
        for name, source in files:
            first = seen.setdefault(int(name.index), name.file)
            if first != name.file:
                sentence = f"{name.file} has the same number as {first}."
                yield LintProblem(source, (), sentence, "Give one of the two another number.")


@rule("file-name", "warning")
def file_name(subject: LintSubject) -> Iterator[LintProblem]:
    """The id in a file is not the one in its name. Skills and workflows are looked up by the name of the file or directory, so
    the id that the file shows cannot be used to find it.
    """
    for named in subject.named_files:
        if named.id != named.expected:
            sentence = f"The {named.kind} calls itself {named.id!r}, but its {named.where} says {named.expected!r}."
            yield LintProblem(named.source, ("id",), sentence, f"Write `id: {named.expected}`, or rename the {named.where}.")


@rule("unknown-key", "warning")
def unknown_key(subject: LintSubject) -> Iterator[LintProblem]:
    """A key that means nothing in this place. It is kept and served, but nothing is done with it; often it is misspelt, and
    what it says is lost.
    """
    head = subject.workflow.model_copy(update={"activities": ()})
    yield from _find_unknown_keys(head, subject.manifest)
    for part in subject.activities:
        yield from _find_unknown_keys(part.activity, part.source)
    for skill in subject.skills:
        yield from _find_unknown_keys(skill.skill, skill.source)


def _find_unknown_keys(model: Definition, source: SourceFile) -> Iterator[LintProblem]:
    for path in unknown_keys(model):
        sentence = f"Nothing is known about the key {path[-1]!r} here."
        yield LintProblem(source, path, sentence, "Correct its spelling, or delete it.")
