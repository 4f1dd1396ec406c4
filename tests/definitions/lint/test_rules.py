"""Every lint rule reports its bad example and does not report its good one."""

from __future__ import annotations

from pathlib import Path

import pytest

from fidelio.definitions.findings import READING_RULES
from fidelio.definitions.lint import RULE_MODULES, RULES, Rule, lint_directory
from fidelio.definitions.lint.examples import load_reading_examples, load_rule_examples
from scripts import generate_lint_docs
from tests.definitions.lint.example_libraries import write_short, write_whole
from tests.support import proves

RULE_EXAMPLES = load_rule_examples()
READING_EXAMPLES = load_reading_examples()
every_rule = pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.id)


@proves("lint.examples", "lint.references", "lint.undeclared", "lint.types", "lint.transitions", "lint.timers", "lint.loops")
@every_rule
def test_the_bad_example_is_reported_by_its_rule_alone(rule: Rule, tmp_path: Path) -> None:
    findings = lint_directory(write_short(RULE_EXAMPLES[rule.id].bad, tmp_path))

    assert {finding.rule for finding in findings} == {rule.id}
    assert all(finding.severity == rule.severity for finding in findings)
    assert all(finding.sentence.endswith(".") and finding.remedy for finding in findings)


@proves("lint.examples", "lint.unknown-keys", "lint.names", "lint.duplicates")
@every_rule
def test_the_good_example_is_clean(rule: Rule, tmp_path: Path) -> None:
    assert lint_directory(write_short(RULE_EXAMPLES[rule.id].good, tmp_path)) == ()


@proves("lint.examples", "lint.reading")
@pytest.mark.parametrize("name", READING_EXAMPLES)
def test_what_reading_finds_is_among_the_findings(name: str, tmp_path: Path) -> None:
    example = READING_EXAMPLES[name]

    assert {finding.rule for finding in lint_directory(write_whole(example.bad, tmp_path / "bad"))} == {name}
    assert lint_directory(write_whole(example.good, tmp_path / "good")) == ()


@proves("lint.documented")
def test_everything_that_can_be_found_has_an_example_on_the_page() -> None:
    assert set(RULES) == set(RULE_EXAMPLES)
    assert set(READING_RULES) - set(RULES) == set(READING_EXAMPLES)


@proves("lint.documented")
@every_rule
def test_every_rule_says_what_it_is_about(rule: Rule) -> None:
    assert rule.documentation.endswith(".")
    assert any(rule.check.__module__ == module.__name__ for module in RULE_MODULES)


@proves("lint.documented")
def test_the_reference_page_is_up_to_date() -> None:
    assert generate_lint_docs.PAGE.read_text("utf-8") == generate_lint_docs.render(), "run `make docs`"
