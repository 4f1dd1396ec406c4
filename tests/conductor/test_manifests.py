"""Parsing of the manifest in a worker's last message."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.conductor.reports import NO_MANIFEST, Manifest, parse_manifest
from fidelio.engine.manifests import StepReport
from tests.support import proves

GREETED = '{"steps": [{"step_id": "greet", "output": "Hello."}], "variables": {"tone": "warm"}}'
EXPECTED = Manifest((StepReport("greet", "Hello."),), {"tone": "warm"})


@proves("conductor.reads-manifests")
@pytest.mark.parametrize(
    "message",
    [
        GREETED,
        f"All done.\n\n```json\n{GREETED}\n```\n",
        f"First I thought {{of braces}}, then {{}} of more.\n{GREETED}",
        f'{{"steps": [{{"step_id": "old", "output": "x"}}]}}\nNo, rather:\n{GREETED}',
        f'{GREETED}\n\nUsage: {{"tokens": 5}}',
        f"{GREETED} :-}}",
    ],
)
def test_the_last_object_with_steps_counts(message: str) -> None:
    assert parse_manifest(message) == EXPECTED


@proves("conductor.reads-manifests")
@pytest.mark.parametrize(
    "message", ["", "I am done.", "{", "}{", '{"variables": {}}', "{" * 5000 + "}" * 5000, '{"a":' * 20_000]
)
def test_a_message_without_steps_is_no_report(message: str) -> None:
    assert parse_manifest(message) == NO_MANIFEST


@proves("conductor.reads-manifests")
def test_structured_results_are_taken_as_they_are() -> None:
    assert parse_manifest("anything", json.loads(GREETED)) == EXPECTED
    assert "array" in str(parse_manifest(GREETED, {"steps": 3}))


@proves("conductor.reads-manifests")
@given(before=st.text(max_size=200), after=st.text(alphabet=st.characters(exclude_characters="}"), max_size=50))
def test_text_around_the_manifest_is_ignored(before: str, after: str) -> None:
    assert parse_manifest(f"{before}\n{GREETED}\n{after}") == EXPECTED


@proves("conductor.reads-manifests")
def test_the_output_of_a_step_may_be_any_json() -> None:
    entries = [{"step_id": "a", "output": None}, {"step_id": "b", "output": {"files": 2}}, {"step_id": "c"}]
    manifest = parse_manifest(json.dumps({"steps": entries}))
    assert isinstance(manifest, Manifest)
    assert [step.output for step in manifest.steps] == ["", '{"files": 2}', ""]


@proves("conductor.reads-manifests")
def test_a_long_report_is_read_whole() -> None:
    entries = [{"step_id": f"step-{n}", "output": "Done."} for n in range(5_000)]
    manifest = parse_manifest(json.dumps({"steps": entries}))
    assert isinstance(manifest, Manifest)
    assert len(manifest.steps) == 5_000


@proves("conductor.unwritable-reports")
@pytest.mark.parametrize("value", ["NaN", "[1e999]", "1" + "0" * 100, '"\\ud800"', '{"\\ud800": 1}', "[" * 80 + "]" * 80])
def test_a_value_that_the_ledger_cannot_store_is_refused(value: str) -> None:
    for report in (f'{{"steps": [], "variables": {{"x": {value}}}}}', f'{{"steps": [{{"step_id": "a", "output": {value}}}]}}'):
        assert str(parse_manifest(report)).startswith("The JSON object with your steps cannot be read: The report")
