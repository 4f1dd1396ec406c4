"""Analysis of queries, without a ledger."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.ledger.bm25 import MAX_WORDS, parse_words
from fidelio.ledger.model import RankQuery
from fidelio.ledger.search import tokenize
from fidelio.runtime.recall.query import (
    MAX_AUTOMATIC_TERMS,
    MAX_PHRASE,
    MAX_TERMS,
    MIN_PHRASE,
    STOP_WORDS,
    analyze_query,
    choose_words,
)
from tests.support import proves


@proves("recall.query")
def test_a_query_has_phrases_terms_paths_and_identifiers() -> None:
    query = analyze_query('Why does  `make test` fail in src/App.py: "Broken Pipe" with max_rows and issue-42, v2?')

    assert query.normalized == 'why does `make test` fail in src/app.py: "broken pipe" with max_rows and issue-42, v2?'
    assert query.phrases == ("make test", "broken pipe")
    assert query.path_terms == ("src/app.py",)
    assert query.identifiers == ("max_rows", "issue-42", "v2")
    assert query.terms == (
        *("why", "does", "`make", "test`", "fail", "src/app.py:", '"broken', 'pipe"', "max_rows", "issue-42,", "v2?"),
    )


@proves("recall.query")
@pytest.mark.parametrize(
    ("text", "terms"),
    [("how is it", ("how", "is", "it")), ("x", ("x",)), ("the cat", ("cat",)), ("", ()), ("a b cd", ("cd",))],
)
def test_stop_words_are_dropped_unless_nothing_else_is_there(text: str, terms: tuple[str, ...]) -> None:
    assert analyze_query(text).terms == terms


@proves("recall.query")
@pytest.mark.parametrize(
    ("text", "paths", "identifiers"),
    [
        ("It fails.", (), ()),
        ("see ./run.sh and a::b", ("./run.sh", "a::b"), ()),
        ("-- __ --flag", (), ()),
        ("#42 is issue#42", (), ("issue#42",)),
        ("état_v1", (), ("état_v1",)),
    ],
)
def test_the_end_of_a_sentence_is_no_path(text: str, paths: tuple[str, ...], identifiers: tuple[str, ...]) -> None:
    query = analyze_query(text)

    assert (query.path_terms, query.identifiers) == (paths, identifiers)


@proves("recall.query")
@given(st.text(max_size=MAX_PHRASE + 20).filter(lambda text: '"' not in text))
def test_a_quoted_text_is_a_phrase_if_it_is_long_enough_and_not_too_long(text: str) -> None:
    plain = " ".join(text.lower().split())
    found = analyze_query(f'before "{text}" after').phrases

    assert (found == (plain,)) == (MIN_PHRASE <= len(plain) <= MAX_PHRASE) or "`" in text


@proves("recall.query")
@given(st.text(max_size=2_000))
def test_any_text_becomes_a_search_within_the_limits_or_has_no_word(text: str) -> None:
    query = analyze_query(text)
    words = choose_words(query)

    if query.is_empty:
        assert not words.words
        return
    parsed = parse_words(RankQuery(terms=words.words, phrases=words.phrases))
    assert 0 < len(parsed.every) <= MAX_WORDS
    assert len(words.words) <= MAX_TERMS
    assert len(set(words.words)) == len(words.words)
    # Nothing is searched for that is not in the text.
    assert set(parsed.every) <= set(tokenize(text.lower()))


@proves("recall.query")
@given(st.lists(st.sampled_from(["the", "a", "cat", "house", "parser", "timeout_ms", "src/x.py", '"red fox"']), max_size=60))
def test_every_piece_occurs_once_and_in_the_text(words: list[str]) -> None:
    query = analyze_query(" ".join(words))

    for pieces in (query.phrases, query.terms, query.path_terms, query.identifiers):
        assert len(set(pieces)) == len(pieces)
        assert all(piece in query.normalized for piece in pieces)
    assert not STOP_WORDS.intersection(query.terms) or set(words) <= STOP_WORDS


@proves("recall.query")
def test_of_a_long_query_the_longest_words_are_searched_in_their_order() -> None:
    long = [f"longword{number:02}" for number in range(20)]
    query = analyze_query(" ".join(f"{word} ab" for word in long))

    assert choose_words(query, MAX_AUTOMATIC_TERMS).words == tuple(long[:MAX_AUTOMATIC_TERMS])
    assert choose_words(analyze_query("the fix of src/app.py")).phrases == ("src app py",)
