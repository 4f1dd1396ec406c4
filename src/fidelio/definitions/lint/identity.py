"""Lint rules for ids, file names and unknown keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from fidelio.definitions.flow import list_steps
from fidelio.definitions.library.identifiers import check_id
from fidelio.definitions.lint.rules import LintProblem, rule, suggest_name
from fidelio.definitions.lint.subject import ActivitySubject, LintSubject, SourceFile, list_inline_activities
from fidelio.definitions.models import Definition, list_known_keys, list_unknown_keys
from fidelio.definitions.models.base import Path
from fidelio.definitions.parsing import NEWER_GENERATION_REMEDY, describe_newer_generation, find_newer_keys
from fidelio.errors import BadId

NamedItem = tuple[str, Path]


class _WithId(Protocol):
    """Any part of a definition that has an id."""

    @property
    def id(self) -> str: ...


@rule("duplicate-id", "error")
def check_duplicate_id(subject: LintSubject) -> Iterator[LintProblem]:
    """Two elements of the same kind have the same id: activities of a workflow, steps, checkpoints, loops, decisions and
    artifacts of an activity, options of a checkpoint, branches of a decision, variables and modes of a workflow. The id always
    refers to the first; the second can never be used.
    """
    head = subject.workflow
    yield from _find_duplicates(
        subject.manifest, "variable", ((v.name, ("variables", i, "name")) for i, v in enumerate(head.variables))
    )
    yield from _find_duplicates(subject.manifest, "mode", ((m.id, ("modes", i, "id")) for i, m in enumerate(head.modes)))
    inline = ((name, (*path, "id")) for name, path in list_inline_activities(subject.manifest))
    yield from _find_duplicates(subject.manifest, "activity", inline)
    for entry in subject.activities:
        yield from _find_duplicates_in_activity(entry)


def _find_duplicates_in_activity(entry: ActivitySubject) -> Iterator[LintProblem]:
    activity = entry.activity
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
    for kind, elements, path in lists:
        yield from _find_duplicates(entry.source, kind, ((element.id, (*path, i, "id")) for i, element in enumerate(elements)))


def _find_duplicates(source: SourceFile, kind: str, named: Iterable[NamedItem]) -> Iterator[LintProblem]:
    seen: set[str] = set()
    for name, path in named:
        if name in seen:
            yield LintProblem(source, path, f"The {kind} {name!r} is declared twice.", "Rename one of the two, or delete it.")
        seen.add(name)


@rule("repeated-step", "warning")
def check_repeated_step(subject: LintSubject) -> Iterator[LintProblem]:
    """A step of a loop has the id of another step of the activity, or of a step in another loop. Both are executed, the loop
    after the steps, and a report with this id does not tell which of the two it refers to.
    """
    for entry in subject.activities:
        seen: dict[str, Path] = {}
        for step, path in list_steps(entry.activity):
            # Another rule reports repetitions in the same list as errors.
            if seen.setdefault(step.id, path[:-1]) != path[:-1]:
                sentence = f"The step {step.id!r} of a loop is also a step outside of that loop."
                yield LintProblem(entry.source, (*path, "id"), sentence, "Rename or delete one of the two.")


@rule("bad-id", "error")
def check_bad_id(subject: LintSubject) -> Iterator[LintProblem]:
    """The id of an activity contains separators, leading dots, outer spaces or unprintable characters. A request for such an id
    is refused, so the activity can never be entered.
    """
    for entry in subject.activities:
        if not _is_valid_id(entry.activity.id):
            sentence = f"The activity id {entry.activity.id!r} is not valid."
            yield LintProblem(entry.source, ("id",), sentence, "Use letters, digits and dashes.")


def _is_valid_id(name: str) -> bool:
    try:
        return check_id(name, "an activity") == name
    except BadId:
        return False


@rule("duplicate-number", "warning")
def check_duplicate_number(subject: LintSubject) -> Iterator[LintProblem]:
    """Two files in a directory begin with the same number. The rest of the name then determines their order, and the number
    always refers to the first resource.
    """
    for files in subject.numbered_files:
        seen: dict[int, str] = {}
        for name, source in files:
            first = seen.setdefault(int(name.index), name.file)
            if first != name.file:
                sentence = f"{name.file} has the same number as {first}."
                yield LintProblem(source, (), sentence, "Give one of the two another number.")


@rule("file-name", "warning")
def check_file_name(subject: LintSubject) -> Iterator[LintProblem]:
    """The id in a file differs from its file name. Skills and workflows are looked up by the name of the file or directory, so
    the id in the file cannot be used to find it.
    """
    for named in subject.named_files:
        if named.id != named.expected:
            sentence = f"The {named.kind} has the id {named.id!r}, but its {named.where} is named {named.expected!r}."
            yield LintProblem(named.source, ("id",), sentence, f"Write `id: {named.expected}`, or rename the {named.where}.")


@rule("unknown-key", "warning")
def check_unknown_key(subject: LintSubject) -> Iterator[LintProblem]:
    """A key is unknown at this position. It is served but has no effect; often it is misspelt, and its value is not used."""
    for model, source, path in _list_unknown_keys(subject):
        if not _is_lost_effect(path) and not _is_newer_key(path, source):
            hint = suggest_name(str(path[-1]), list_known_keys(model, path))
            yield LintProblem(
                source, path, f"The key {path[-1]!r} is unknown here.", hint or "Correct its spelling, or delete it."
            )


@rule("lost-effect", "error")
def check_lost_effect(subject: LintSubject) -> Iterator[LintProblem]:
    """A key in or next to the `effect` of an option is unknown, so choosing the option does not have that effect. A person
    answers, and nothing changes.
    """
    for _, source, path in _list_unknown_keys(subject):
        if _is_lost_effect(path):
            hint = suggest_name(str(path[-1]), (*EFFECT_KEYS, "effect"))
            remedy = hint or f"An effect has {', '.join(EFFECT_KEYS)}."
            yield LintProblem(source, path, f"The key {path[-1]!r} is unknown here, and what it sets is lost.", remedy)


@rule("newer-generation", "warning")
def check_newer_generation(subject: LintSubject) -> Iterator[LintProblem]:
    """A file has keys of a newer generation of the format: techniques, fragments, or steps with `kind`. They are served but
    have no effect. Where such a file cannot be read at all, this is an error.
    """
    for source in {entry.source.file: entry.source for entry in subject.activities}.values():
        if keys := _find_newer_keys(source):
            yield LintProblem(source, (), describe_newer_generation(keys), NEWER_GENERATION_REMEDY)


def _list_unknown_keys(subject: LintSubject) -> Iterator[tuple[Definition, SourceFile, Path]]:
    models: list[tuple[Definition, SourceFile]] = [
        (subject.workflow.model_copy(update={"activities": ()}), subject.manifest),
        *((entry.activity, entry.source) for entry in subject.activities),
        *((skill.skill, skill.source) for skill in subject.skills),
    ]
    for model, source in models:
        yield from ((model, source, path) for path in list_unknown_keys(model))


EFFECT_KEYS = ("setVariable", "transitionTo", "skipActivities")


def _is_lost_effect(path: Path) -> bool:
    """Whether the unknown key is in an `effect`, or in an option with a name like that of an effect."""
    if len(path) > 1 and path[-2] == "effect":
        return True
    in_option = len(path) > 2 and path[-3] == "options"
    return in_option and bool(suggest_name(str(path[-1]), (*EFFECT_KEYS, "effect")))


def _is_newer_key(path: Path, source: SourceFile) -> bool:
    """Whether the key belongs to a newer generation, which has its own finding."""
    keys = _find_newer_keys(source)
    return path[-1] in keys or (path[-1] == "kind" and "steps" in keys)


def _find_newer_keys(source: SourceFile) -> list[str]:
    return find_newer_keys(source.document.data) if source.document is not None else []
