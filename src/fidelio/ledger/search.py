"""Full-text search shared by both databases: tokenizer, query parser, explanations and excerpts.

The tokenizers of SQLite and PostgreSQL disagree, so texts are tokenized here and a database only stores and matches the words.
The same query therefore finds the same events in both, and the explanation of a hit uses the words that matched.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import msgspec

from fidelio.errors import BadQuery
from fidelio.ledger.model import FieldMatch, Hit, decode_body

MAX_QUERY_LENGTH = 1_000
MAX_QUERY_WORDS = 16
MAX_WORD_LENGTH = 64
EXCERPT_LENGTH = 120
RANKED_EXCERPT_LENGTH = 180
RANKED_EXCERPT_LEAD = 40
# Folding keeps no positions, so a text that is not ASCII is folded character by character to find a word in it.
_MAX_FOLDED = 20_000
MAX_FIELDS = 8
MAX_HITS = 100
# The newest matches of a query that are ranked.
CANDIDATES = 40

# Scripts without spaces between words: every character is a word, and a query of several characters is a phrase.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_SEPARATORS = {code: " " for code in range(128) if not chr(code).isalnum()}
_QUERY = re.compile(r'"([^"]*)"(\*?)|([^\s"]+)')


class Term(msgspec.Struct, frozen=True):
    """A required term of a query: a sequence of words. With `prefix`, the last of them is a prefix."""

    words: tuple[str, ...]
    prefix: bool = False

    def __str__(self) -> str:
        return " ".join(self.words) + ("*" if self.prefix else "")


def tokenize(text: str) -> list[str]:
    """Split a text into words without case and accents.

    The stored index consists of these words, and entries are removed by computing the same words again: a release that changes
    the result needs a migration that rebuilds the index.
    """
    if text.isascii():
        # Nearly all texts are ASCII, and this is five times as fast as the regular expression.
        tokens = text.lower().translate(_SEPARATORS).split()
        if not tokens or len(max(tokens, key=len)) <= MAX_WORD_LENGTH:
            return tokens
    return _word_pattern().findall(_fold(text))


def parse_query(text: str) -> tuple[Term, ...]:
    """Parse the text of a query into terms; raise `BadQuery` if it has none or exceeds a limit."""
    if len(text) > MAX_QUERY_LENGTH:
        raise BadQuery(f"The search text has {len(text)} characters.", remedy=f"Use up to {MAX_QUERY_LENGTH}.")
    terms = tuple(dict.fromkeys(term for match in _QUERY.finditer(text) if (term := _parse_term(match)).words))
    if not terms:
        raise BadQuery("The search text has no word in it.", remedy='Use words, "a phrase" or a prefix with a star: fail*.')
    if sum(len(term.words) for term in terms) > MAX_QUERY_WORDS:
        raise BadQuery(f"The search text has more than {MAX_QUERY_WORDS} words.", remedy="Leave out the common ones.")
    return terms


def iter_fields(body: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Iterate over the strings and integers in a body, each with its dotted path."""
    if isinstance(body, str):
        yield path, body
    elif isinstance(body, dict):
        for key, value in body.items():
            yield from iter_fields(value, f"{path}.{key}" if path else key)
    elif isinstance(body, list):
        for index, value in enumerate(body):
            yield from iter_fields(value, f"{path}.{index}" if path else str(index))
    elif isinstance(body, int) and not isinstance(body, bool):
        yield path, str(body)


def explain_match(fields: Iterable[tuple[str, str]], terms: Sequence[Term]) -> tuple[FieldMatch, ...]:
    """List the fields that contain terms of the query, those with the most terms first."""
    matches = [match for path, text in fields if (match := _explain_field(path, text, terms))]
    matches.sort(key=lambda match: -len(match.terms))
    return tuple(matches[:MAX_FIELDS])


def to_event_hits(rows: Iterable[Iterable[Any]], terms: Sequence[Term]) -> Iterator[Hit]:
    """Explain the events that a database found: session, seq, type, time and body."""
    for session, seq, type_, time, body in rows:
        if body is not None:
            matches = explain_match(iter_fields(decode_body(body)), terms)
            yield Hit("event", session, seq, type_, None, None, None, time, compute_rank(matches), matches)


def to_document_hits(rows: Iterable[Iterable[Any]], terms: Sequence[Term]) -> Iterator[Hit]:
    """Explain the documents that a database found: session, space, path, version, time and content."""
    for session, space, path, version, time, content in rows:
        matches = explain_match((("path", path), ("text", content.decode())), terms)
        yield Hit("document", session, None, "document", space, path, version, time, compute_rank(matches), matches)


def select_best(hits: Iterable[Hit], size: int) -> tuple[Hit, ...]:
    return tuple(sorted(hits, key=lambda hit: (-hit.rank, -hit.time))[:size])


def compute_rank(matches: Sequence[FieldMatch]) -> float:
    """Rank a hit: many terms in a short field count more than terms scattered over several long fields."""
    if not matches:
        return 0.0
    terms_in_best = len(matches[0].terms)
    brevity = 1 / (1 + min(len(match.excerpt) for match in matches) / EXCERPT_LENGTH)
    return round(terms_in_best + brevity + 0.1 * (len(matches) - 1), 4)


def _parse_term(match: re.Match[str]) -> Term:
    phrase, phrase_star, word = match.groups()
    if word is None:
        return Term(tuple(tokenize(phrase)), prefix=phrase_star == "*")
    return Term(tuple(tokenize(word)), prefix=word.endswith("*"))


def _fold(text: str) -> str:
    # Casefolded twice: some characters, such as mathematical letters, decompose into capitals.
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text.casefold()).casefold())
    return "".join([char for char in plain if not unicodedata.combining(char)])


def _explain_field(path: str, text: str, terms: Sequence[Term]) -> FieldMatch | None:
    tokens = tokenize(text)
    present = tuple(str(term) for term in terms if _contains(term, tokens))
    return FieldMatch(path, present, make_excerpt(text, terms)) if present else None


def _contains(term: Term, tokens: Sequence[str]) -> bool:
    *whole, last = term.words
    for end in range(len(whole), len(tokens)):
        is_match = tokens[end].startswith(last) if term.prefix else tokens[end] == last
        if is_match and tokens[end - len(whole) : end] == whole:
            return True
    return False


def make_excerpt(text: str, terms: Sequence[Term]) -> str:
    """Cut the text around the first matching word, without line breaks."""
    starts = "|".join(re.escape(term.words[0]) for term in terms)
    match = re.search(rf"(?<!\w)(?:{starts})", text, re.IGNORECASE)
    start = max(0, (match.start() if match else 0) - EXCERPT_LENGTH // 3)
    cut = " ".join(text[start : start + EXCERPT_LENGTH].split())
    return f"{'…' if start else ''}{cut}{'…' if start + EXCERPT_LENGTH < len(text) else ''}"


def cut_excerpt(texts: Sequence[str], words: frozenset[str]) -> str:
    """Cut up to 180 characters from the text with most of the words, from 40 before the first of them; without line breaks."""
    # Parts of longer words count too: splitting every text into words would cost more than everything else here.
    text = max(texts, key=lambda text: sum(map(text.lower().__contains__, words)), default="")
    start = max(0, _find_first(text, words) - RANKED_EXCERPT_LEAD)
    lead = "…" if start else ""
    cut = " ".join(text[start : start + RANKED_EXCERPT_LENGTH].split())
    if start + RANKED_EXCERPT_LENGTH < len(text) or len(lead + cut) > RANKED_EXCERPT_LENGTH:
        cut = cut[: RANKED_EXCERPT_LENGTH - len(lead) - 1] + "…"
    return lead + cut


def _find_first(text: str, words: Iterable[str]) -> int:
    """The position of the first of the words in the text; 0 if none is found."""
    if text.isascii():
        folded = text.lower()
        return min((at for word in words if (at := _find_word(folded, word)) >= 0), default=0)
    pairs = [(char, at) for at, original in enumerate(text[:_MAX_FOLDED]) for char in _fold(original)]
    folded = "".join([char for char, _ in pairs])
    return min((pairs[at][1] for word in words if (at := _find_word(folded, word)) >= 0), default=0)


def _find_word(folded: str, word: str) -> int:
    """The position of a whole word, else of any occurrence; -1 if there is none."""
    first = at = folded.find(word)
    while at >= 0:
        around = folded[at - 1 : at] + folded[at + len(word) : at + len(word) + 1]
        if not any(char.isalnum() for char in around):
            return at
        at = folded.find(word, at + 1)
    return first


@cache
def _word_pattern() -> re.Pattern[str]:
    # Compiled at the first use: compiling takes longer than the rest of opening a ledger.
    return re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]{{1,{MAX_WORD_LENGTH}}}")
