"""The rule about keys that no definition knows."""

from __future__ import annotations

from collections.abc import Iterator

from fidelio.definitions.lint.rules import Problem, rule
from fidelio.definitions.lint.subject import Source, Subject
from fidelio.definitions.models import Definition, unknown_keys


@rule(
    "unknown-key",
    "warning",
    bad="""
activities:
  - id: plan
    descripton: What is to be done.
""",
    good="""
activities:
  - id: plan
    description: What is to be done.
""",
)
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
