"""Rules about names: every id once, and the same in the file and in its name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from fidelio.definitions.flow import steps_of
from fidelio.definitions.library.identifiers import checked_id
from fidelio.definitions.lint.rules import Problem, rule
from fidelio.definitions.lint.subject import ActivityPart, Source, Subject
from fidelio.definitions.models import Definition, unknown_keys
from fidelio.definitions.models.base import Path
from fidelio.errors import BadId

Named = tuple[str, Path]


class _WithId(Protocol):
    """Any part of a definition that has an id."""

    @property
    def id(self) -> str: ...


@rule("duplicate-id", "error")
def duplicate_id(subject: Subject) -> Iterator[Problem]:
    """Two things of one kind bear the same id: activities of a workflow, steps, checkpoints, loops, decisions and artifacts of
    an activity, options of a checkpoint, branches of a decision, variables and modes of a workflow. Whoever asks for the id
    gets the first; the second can never be reached.
    """
    head = subject.workflow
    yield from _twice(subject.manifest, "variable", ((v.name, ("variables", i, "name")) for i, v in enumerate(head.variables)))
    yield from _twice(subject.manifest, "mode", ((m.id, ("modes", i, "id")) for i, m in enumerate(head.modes)))
    yield from _twice(subject.manifest, "activity", subject.written_out)
    for part in subject.activities:
        yield from _twice_in_activity(part)


def _twice_in_activity(part: ActivityPart) -> Iterator[Problem]:
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
        yield from _twice(part.source, kind, ((thing.id, (*path, i, "id")) for i, thing in enumerate(things)))


def _twice(source: Source, kind: str, named: Iterable[Named]) -> Iterator[Problem]:
    seen: set[str] = set()
    for name, path in named:
        if name in seen:
            yield Problem(source, path, f"The {kind} {name!r} is declared twice.", "Rename one of the two, or delete it.")
        seen.add(name)


@rule("repeated-step", "warning")
def repeated_step(subject: Subject) -> Iterator[Problem]:
    """A step of a loop bears the id of another step of the activity, or of one in another loop. Both are done, the loop after
    the steps, and a report about the id does not say which of the two is meant.
    """
    for part in subject.activities:
        seen: dict[str, Path] = {}
        for step, path in steps_of(part.activity):
            # Twice in the same list is an error, and said by another rule.
            if seen.setdefault(step.id, path[:-1]) != path[:-1]:
                sentence = f"The step {step.id!r} of a loop is also a step outside of that loop."
                yield Problem(
                    part.source, (*path, "id"), sentence, "Rename one of the two, or delete the one that is too much."
                )


@rule("bad-id", "error")
def bad_id(subject: Subject) -> Iterator[Problem]:
    """The id of an activity has separators, leading dots, outer spaces or unprintable characters in it. Such an id is refused
    when somebody asks for it, so the activity can never be entered.
    """
    for part in subject.activities:
        if not _can_be_asked_for(part.activity.id):
            sentence = f"Nobody can ask for an activity with the id {part.activity.id!r}."
            yield Problem(part.source, ("id",), sentence, "Use letters, digits and dashes.")


def _can_be_asked_for(name: str) -> bool:
    try:
        return checked_id(name, "an activity") == name
    except BadId:
        return False


@rule("duplicate-number", "warning")
def duplicate_number(subject: Subject) -> Iterator[Problem]:
    """Two files of one directory begin with the same number. Their order is then decided by the rest of the name, and a
    resource that is asked for by its number is always the first of the two.
    """
    for files in subject.numbered:
        seen: dict[int, str] = {}
        for name, source in files:
            first = seen.setdefault(int(name.index), name.file)
            if first != name.file:
                sentence = f"{name.file} has the same number as {first}."
                yield Problem(source, (), sentence, "Give one of the two another number.")


@rule("file-name", "warning")
def file_name(subject: Subject) -> Iterator[Problem]:
    """The id in a file is not the one in its name. Skills and workflows are looked up by the name of the file or directory, so
    the id that the file shows cannot be used to find it.
    """
    for named in subject.named:
        if named.id != named.expected:
            sentence = f"The {named.kind} calls itself {named.id!r}, but its {named.where} says {named.expected!r}."
            yield Problem(named.source, ("id",), sentence, f"Write `id: {named.expected}`, or rename the {named.where}.")


@rule("unknown-key", "warning")
def unknown_key(subject: Subject) -> Iterator[Problem]:
    """A key that means nothing in this place. It is kept and served, but nothing is done with it; often it is misspelt, and
    what it says is lost.
    """
    head = subject.workflow.model_copy(update={"activities": ()})
    yield from _unknown(head, subject.manifest)
    for part in subject.activities:
        yield from _unknown(part.activity, part.source)
    for skill in subject.skills:
        yield from _unknown(skill.skill, skill.source)


def _unknown(model: Definition, source: Source) -> Iterator[Problem]:
    for path in unknown_keys(model):
        sentence = f"Nothing is known about the key {path[-1]!r} here."
        yield Problem(source, path, sentence, "Correct its spelling, or delete it.")
