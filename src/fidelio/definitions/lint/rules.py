"""Lint rules: their type, their registry and the problems they report.

A rule is a small function that checks one workflow and yields its problems. Its docstring is its documentation. The examples in
`lint/examples` show for each rule a text that it reports and one that it does not. The reference page is generated from both,
and the tests run the examples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from fidelio.definitions.findings import Finding, Severity
from fidelio.definitions.lint.subject import LintSubject, SourceFile
from fidelio.definitions.models.base import Path


@dataclass(frozen=True, slots=True)
class LintProblem:
    """A problem that a rule reports: its path, a sentence and a remedy."""

    source: SourceFile
    path: Path
    sentence: str
    remedy: str


Check = Callable[[LintSubject], Iterator[LintProblem]]


@dataclass(frozen=True, slots=True)
class Rule:
    """A registered rule: its id, its severity and the function that checks a workflow."""

    id: str
    severity: Severity
    check: Check
    # Rules for references and variables check a borrowed activity again in each workflow that borrows it.
    by_workflow: bool = False

    @property
    def documentation(self) -> str:
        return " ".join((self.check.__doc__ or "").split())

    def findings(self, subject: LintSubject) -> Iterator[Finding]:
        for problem in self.check(subject):
            if problem.source.borrowed and not self.by_workflow:
                continue
            position = problem.source.at(problem.path)
            where = f" (in workflow {subject.workflow.id})" if problem.source.borrowed else ""
            sentence = problem.sentence.removesuffix(".") + where + "." if where else problem.sentence
            yield Finding(problem.source.file, *position, self.id, self.severity, sentence, problem.remedy)


RULES: dict[str, Rule] = {}


def rule(name: str, severity: Severity, *, by_workflow: bool = False) -> Callable[[Check], Check]:
    """Register a check under its id."""

    def register(check: Check) -> Check:
        RULES[name] = Rule(name, severity, check, by_workflow)
        return check

    return register


_SIMILARITY = 0.78


def suggest_name(name: str, known: Iterable[str]) -> str:
    """A hint with the most similar name, or an empty text."""
    spellings = {candidate.casefold(): candidate for candidate in known}
    found = get_close_matches(name.casefold(), spellings, n=1, cutoff=_SIMILARITY)
    return f"Did you mean {spellings[found[0]]}?" if found else ""
