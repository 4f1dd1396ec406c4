"""Tokenizer, query parser and explanations of the search, without a database."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.errors import BadQuery
from fidelio.ledger.model import FieldMatch
from fidelio.ledger.search import (
    EXCERPT_LENGTH,
    Term,
    compute_rank,
    explain_match,
    iter_fields,
    parse_query,
    tokenize,
)
from tests.support import proves


@proves("ledger.search")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The quick_brown FOX-hound 42", ["the", "quick", "brown", "fox", "hound", "42"]),
        ("Crème Straße ﬁn", ["creme", "strasse", "fin"]),
        ("東京a", ["東", "京", "a"]),
        ("x" * 70, ["x" * 64, "x" * 6]),
        ("\x00\x01\ue000 _ \t", []),
    ],
)
def test_a_text_is_split_into_folded_words(text: str, expected: list[str]) -> None:
    assert tokenize(text) == expected


@proves("ledger.search")
@given(st.text(st.characters(codec="ascii")))
def test_plain_and_other_texts_are_split_by_the_same_rule(text: str) -> None:
    # One accented letter sends a text the long way.
    assert [*tokenize(text), "e"] == tokenize(f"{text} é")


@proves("ledger.search")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one Two one", [Term(("one",)), Term(("two",))]),
        ('"red apple" pie', [Term(("red", "apple")), Term(("pie",))]),
        ("fail* foo-bar*", [Term(("fail",), prefix=True), Term(("foo", "bar"), prefix=True)]),
        ('"red app"*', [Term(("red", "app"), prefix=True)]),
        ('"open phrase', [Term(("open",)), Term(("phrase",))]),
        ("a AND NOT b", [Term(("a",)), Term(("and",)), Term(("not",)), Term(("b",))]),
    ],
)
def test_a_search_text_asks_for_terms(text: str, expected: list[Term]) -> None:
    assert list(parse_query(text)) == expected


@proves("ledger.search-hostile")
@given(st.text())
def test_every_search_text_becomes_words_or_is_refused(text: str) -> None:
    with contextlib.suppress(BadQuery):
        for term in parse_query(text):
            assert term.words
            # Nothing that the language of an index could take for its own.
            assert all(char.isalnum() or not char.isascii() for word in term.words for char in word)


@proves("ledger.search")
def test_the_fields_of_a_body_have_dotted_paths() -> None:
    body = {"a": "x", "b": [1, {"c": "y"}], "d": None, "e": True, "f": 2.5}

    assert list(iter_fields(body)) == [("a", "x"), ("b.0", "1"), ("b.1.c", "y")]


@proves("ledger.search")
def test_an_explanation_names_the_fields_with_the_most_terms_first() -> None:
    fields = [("title", "red"), ("text", "a red and green apple"), ("other", "blue")]

    assert explain_match(fields, parse_query("red green")) == (
        FieldMatch("text", ("red", "green"), "a red and green apple"),
        FieldMatch("title", ("red",), "red"),
    )


@proves("ledger.search")
def test_an_excerpt_shows_the_place_and_not_the_whole_text() -> None:
    long = "word " * 500 + "the needle is here " + "word " * 500
    (match,) = explain_match([("text", long)], parse_query("needle"))

    assert "the needle is here" in match.excerpt
    assert match.excerpt.startswith("…")
    assert match.excerpt.endswith("…")
    assert len(match.excerpt) < 130


@proves("ledger.search")
def test_words_together_in_a_short_field_score_higher_than_scattered_ones() -> None:
    together = explain_match([("a", "red apple")], parse_query("red apple"))
    scattered = explain_match([("a", "red"), ("b", "apple")], parse_query("red apple"))
    long = explain_match([("a", "red apple " + "and so on " * 50)], parse_query("red apple"))

    assert compute_rank(together) > compute_rank(long) > compute_rank(scattered) > compute_rank(()) == 0


@proves("ledger.search")
def test_a_field_counts_between_half_a_term_and_a_whole_one_more_by_its_length() -> None:
    assert compute_rank((FieldMatch("a", ("red",), ""),)) == 2
    assert compute_rank((FieldMatch("a", ("red",), "x" * EXCERPT_LENGTH),)) == 1.5
    assert compute_rank((FieldMatch("a", ("red",), ""), FieldMatch("b", ("red",), "x"))) == 2.1
