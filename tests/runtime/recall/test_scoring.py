"""Relevance, reasons and merge, without a ledger."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.runtime.recall.model import Candidate, Found, Source
from fidelio.runtime.recall.query import analyze_query
from fidelio.runtime.recall.scoring import explain, merge, weigh_found
from tests.runtime.recall.support import make_found, make_outcome, make_session
from tests.support import proves

OWN = make_session("s_own")


def weigh(own: Any = OWN, **more: Any) -> Candidate:
    """The candidate of a text that is the best of its search."""
    (found,) = weigh_found([make_found(**more)], own)
    return found


@proves("recall.priors")
@pytest.mark.parametrize(
    ("source", "base"),
    [
        ("learning", 5),
        ("workspace_memory", 3),
        ("workspace_memory_notes", 4),
        ("session_checkpoint", 1),
        ("session_evaluation", 3),
        ("session_outcome", 2),
        ("session_state", 0),
        ("working_buffer", 0),
        ("shell_state", 0),
        ("session_context", 2),
        ("session_trace", 3),
        ("vector", 0),
    ],
)
def test_every_source_has_its_base(source: Source, base: int) -> None:
    assert weigh(source=source).relevance == 10 + base


@proves("recall.priors")
def test_the_text_counts_ten_for_the_best_and_less_in_proportion() -> None:
    found = [make_found(relevance=value, text=str(value)) for value in (8.0, 4.0, 1.0, 0.0)]
    vector = make_found(relevance=0.3, scale="vector", source="vector")

    weighed = weigh_found([*found, vector], OWN)

    # The last has nothing of the query; another backend has its own scale.
    assert [each.text_relevance for each in weighed] == [10, 5, 1.25, 10]
    assert [each.relevance for each in weighed] == [12, 7, 3.25, 10]


@proves("recall.priors")
def test_the_same_setup_counts_two_for_every_source_of_a_session() -> None:
    own = make_session("s_own", setup="f1")
    for source in ("session_context", "session_state"):
        same, other, none = (weigh(own, source=source, session=make_session(setup=setup)) for setup in ("f1", "f2", ""))

        assert same.relevance == other.relevance + 2 == none.relevance + 2
        assert (same.setup_matches, other.setup_matches, none.setup_matches) == (True, False, None)
        assert (same.reasons, other.reasons) == (("setup-match",), ())


@proves("recall.priors")
@pytest.mark.parametrize(
    ("outcome", "more", "reasons"),
    [
        (make_outcome("ship IT"), 3, ("outcome-title",)),
        (make_outcome("Other", "Tests pass on CI"), 2, ("outcome-criteria:2",)),
        (make_outcome("Other", "tests"), 1, ("outcome-criteria:1",)),
        (make_outcome("Ship it", "all tests pass, docs and demo"), 5, ("outcome-title", "outcome-criteria:6")),
        (make_outcome("Other", "to be on it"), 0, ()),
        (None, 0, ()),
    ],
)
def test_a_close_outcome_counts_up_to_five(outcome: Any, more: int, reasons: tuple[str, ...]) -> None:
    own = make_session("s_own", outcome=make_outcome("Ship it", "all tests pass", "docs and demo"))
    found = weigh(own, session=make_session(outcome=outcome))

    assert (found.relevance, found.reasons) == (12 + more, reasons)


@proves("recall.priors")
def test_relatives_count_but_not_grandparents_and_the_session_itself() -> None:
    own = make_session("s_own", parent="s_parent", outcome=make_outcome("x"))
    others = {
        "child": make_session(parent="s_own"),
        "parent": make_session("s_parent", parent="s_top"),
        "sibling": make_session(parent="s_parent"),
        "grandparent": make_session("s_top"),
        "self": own,
    }
    found = {name: weigh(own, session=session) for name, session in others.items()}

    assert {name: each.relevance - 12 for name, each in found.items()} == {
        "child": 2,
        "parent": 2,
        "sibling": 1,
        "grandparent": 0,
        "self": 0,
    }
    assert {name: each.relation for name, each in found.items()} == {
        "child": "child",
        "parent": "parent",
        "sibling": "sibling",
        "grandparent": None,
        "self": None,
    }
    assert found["child"].reasons == ("relation:child",)


@proves("recall.priors")
@pytest.mark.parametrize("source", ["session_state", "working_buffer", "shell_state"])
def test_outcome_and_relation_of_notes_are_told_but_do_not_count(source: Source) -> None:
    own = make_session("s_own", outcome=make_outcome("x"))
    found = weigh(own, source=source, session=make_session(parent="s_own", outcome=make_outcome("x")))

    assert (found.relevance, found.reasons) == (10, ("outcome-title", "relation:child"))


@proves("recall.words", "recall.priors")
@pytest.mark.parametrize(
    ("text", "reasons"),
    [
        (
            "Fix the `broken pipe` in src/app.py, max_rows",
            ("exact-query", "exact-phrase:1", "path-match:1", "identifier-match:1", "term-overlap:5"),
        ),
        ("a Broken-Pipe", ("exact-phrase:1", "term-overlap:2")),
        ("src app py and max rows", ("path-match:1", "identifier-match:1", "term-overlap:2")),
        ("the fixed pipelines are unbroken", ()),
        ("pipe broken", ("term-overlap:2",)),
    ],
)
def test_reasons_count_what_a_text_has_in_whole_words(text: str, reasons: tuple[str, ...]) -> None:
    query = analyze_query("fix the `broken pipe` in src/app.py, max_rows")
    (found,) = explain([weigh(text=text)], query)

    assert found.reasons == reasons


@proves("recall.merge")
def test_the_memory_of_a_session_is_one_hit_with_an_evidence_for_each_source() -> None:
    session = make_session()
    sources: tuple[Source, ...] = ("session_checkpoint", "session_outcome", "session_state", "session_evaluation")
    found = [make_found(backend="memory", source=source, session=session, relevance=4.0, text=source) for source in sources]

    (merged,) = merge(weigh_found(found, OWN))

    # The evaluation is the strongest: 10 + 3, and three more sources, not 1 + 2 + 3.
    assert (merged.found.source, merged.relevance) == ("session_evaluation", 13 + 3)
    assert sorted(source for _, source in merged.evidences) == sorted(sources)
    assert sorted(merged.texts) == sorted(sources)
    assert merged.confidence == "high"


@proves("recall.merge")
def test_the_same_source_twice_is_one_evidence() -> None:
    ends = [make_found(backend="session_trace", source="session_trace", session=make_session(), wake="w1") for _ in range(2)]

    (merged,) = merge(weigh_found(ends, OWN))

    assert (merged.relevance, merged.evidences) == (13, (("session_trace", "session_trace"),))


@proves("recall.merge")
def test_different_events_wakes_sessions_and_texts_stay_apart() -> None:
    one, two = make_session("s_one"), make_session("s_two")
    found = [
        make_found(session=one, event="e1", wake="w1"),
        make_found(session=one, event="e2", wake="w1"),
        make_found(session=one, wake="w1", source="session_trace"),
        make_found(session=two, wake="w1", source="session_trace"),
        make_found(session=one, source="session_state"),
        make_found(source="learning", text="a"),
        make_found(source="learning", text="b"),
    ]

    assert len(merge(weigh_found(found, OWN))) == len(found)
    assert len(merge(weigh_found([*found, *found], OWN))) == len(found)


@proves("recall.merge")
@given(st.lists(st.tuples(st.sampled_from(["session_state", "session_outcome", "shell_state"]), st.integers(1, 9)), min_size=1))
def test_the_order_of_the_evidences_does_not_matter(pairs: list[tuple[Source, int]]) -> None:
    def build(items: list[tuple[Source, int]]) -> list[Found]:
        session = make_session()
        return [make_found(source=source, session=session, relevance=float(value)) for source, value in items]

    (one,), (other,) = (merge(weigh_found(build(items), OWN)) for items in (pairs, pairs[::-1]))

    assert one.relevance == other.relevance
    assert one.relevance <= 10 + 2 + 2


@proves("recall.priors")
def test_of_equal_relevance_the_same_setup_then_a_relation_then_the_newest_comes_first() -> None:
    own = make_session("s_own", setup="f")
    found = [
        make_found(session=make_session("s_old"), time=1, relevance=10.0),
        make_found(session=make_session("s_new"), time=2, relevance=10.0),
        make_found(session=make_session("s_child", parent="s_own"), time=0, relevance=8.0),
        make_found(session=make_session("s_setup", setup="f"), time=0, relevance=8.0),
    ]

    ordered = merge(weigh_found(found, own))

    assert len({each.relevance for each in ordered}) == 1
    assert [each.found.session.id for each in ordered if each.found.session] == ["s_setup", "s_child", "s_new", "s_old"]


@proves("recall.priors")
@pytest.mark.parametrize(("relevance", "confidence"), [(10.0, "high"), (9.9, "medium"), (6.0, "medium"), (5.9, "low")])
def test_confidence_follows_the_relevance(relevance: float, confidence: str) -> None:
    candidate = Candidate(found=make_found(), relevance=relevance, text_relevance=1.0, reasons=(), evidences=(("a", "b"),))

    assert candidate.confidence == confidence
