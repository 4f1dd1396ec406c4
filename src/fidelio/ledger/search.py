"""Words: what a text is searched by, what a search text asks for, and why a hit is a hit.

Both databases have a tokeniser of their own, and the two disagree. So the words are made here, once, and a database only stores
and finds them: the same search finds the same events on both, and the explanation of a hit uses the very words that found it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from fidelio.errors import BadQuery
from fidelio.ledger.model import FieldMatch

LONGEST_QUERY = 1_000
MOST_TERMS = 16
LONGEST_WORD = 64
EXCERPT = 120
MOST_FIELDS = 8

# Scripts written without spaces: every character is a word, and a search for several of them becomes a phrase.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_GAPS = {code: " " for code in range(128) if not chr(code).isalnum()}
_QUERY = re.compile(r'"([^"]*)"(\*?)|([^\s"]+)')


class Term(msgspec.Struct, frozen=True):
    """One thing that must be there: words in a row, the last of which may be only a beginning."""

    words: tuple[str, ...]
    prefix: bool = False

    def __str__(self) -> str:
        return " ".join(self.words) + ("*" if self.prefix else "")


def words(text: str) -> list[str]:
    """The words of a text in order, folded so that case and accents do not matter.

    What is in an index was put there by this function and is found and taken out by this function: a release that changes its
    results must bring a migration that builds the index anew.
    """
    if text.isascii():
        # Nearly all text is plain, and this is five times as fast as the pattern.
        found = text.lower().translate(_GAPS).split()
        if not found or len(max(found, key=len)) <= LONGEST_WORD:
            return found
    return _word().findall(_folded(text))


def parse(text: str) -> tuple[Term, ...]:
    """What a search text asks for; raises `BadQuery` when that is nothing or too much."""
    if len(text) > LONGEST_QUERY:
        raise BadQuery(f"The search text has {len(text)} characters.", remedy=f"Use up to {LONGEST_QUERY}.")
    terms = tuple(dict.fromkeys(term for match in _QUERY.finditer(text) if (term := _term(match)).words))
    if not terms:
        raise BadQuery("The search text has no word in it.", remedy='Use words, "a phrase" or a beginning with a star: fail*.')
    if sum(len(term.words) for term in terms) > MOST_TERMS:
        raise BadQuery(f"The search text has more than {MOST_TERMS} words.", remedy="Leave out the common ones.")
    return terms


def leaves(body: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every text and whole number in a body with its dotted path: the fields of a hit."""
    if isinstance(body, str):
        yield path, body
    elif isinstance(body, dict):
        for key, value in body.items():
            yield from leaves(value, f"{path}.{key}" if path else key)
    elif isinstance(body, list):
        for index, value in enumerate(body):
            yield from leaves(value, f"{path}.{index}" if path else str(index))
    elif isinstance(body, int) and not isinstance(body, bool):
        yield path, str(body)


def texts(body: object) -> list[str]:
    """`leaves` without the paths, which cost more than everything else about indexing."""
    found: list[str] = []
    _gather(body, found)
    return found


def explain(fields: Iterable[tuple[str, str]], terms: Sequence[Term]) -> tuple[FieldMatch, ...]:
    """Which fields hold which terms, those with the most terms first."""
    found = [match for path, text in fields if (match := _explain_field(path, text, terms))]
    found.sort(key=lambda match: -len(match.terms))
    return tuple(found[:MOST_FIELDS])


def score(matches: Sequence[FieldMatch]) -> float:
    """How good a hit is: all words close together in one short field are better than scattered over long ones."""
    if not matches:
        return 0.0
    together = len(matches[0].terms)
    brevity = 1 / (1 + min(len(match.excerpt) for match in matches) / EXCERPT)
    return round(together + brevity + 0.1 * (len(matches) - 1), 4)


def _gather(body: object, found: list[str]) -> None:
    if isinstance(body, str):
        found.append(body)
    elif isinstance(body, dict):
        for value in body.values():
            _gather(value, found)
    elif isinstance(body, list):
        for value in body:
            _gather(value, found)
    elif isinstance(body, int) and not isinstance(body, bool):
        found.append(str(body))


def _term(match: re.Match[str]) -> Term:
    phrase, phrase_star, word = match.groups()
    if word is None:
        return Term(tuple(words(phrase)), prefix=phrase_star == "*")
    return Term(tuple(words(word)), prefix=word.endswith("*"))


def _folded(text: str) -> str:
    # Folded once more at the end: some letters, such as mathematical ones, turn into capitals only when they are decomposed.
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text.casefold()).casefold())
    return "".join([char for char in plain if not unicodedata.combining(char)])


def _explain_field(path: str, text: str, terms: Sequence[Term]) -> FieldMatch | None:
    tokens = words(text)
    present = tuple(str(term) for term in terms if _stands_in(term, tokens))
    return FieldMatch(path, present, excerpt(text, terms)) if present else None


def _stands_in(term: Term, tokens: Sequence[str]) -> bool:
    *whole, last = term.words
    for end in range(len(whole), len(tokens)):
        matches = tokens[end].startswith(last) if term.prefix else tokens[end] == last
        if matches and tokens[end - len(whole) : end] == whole:
            return True
    return False


def excerpt(text: str, terms: Sequence[Term]) -> str:
    """The surroundings of the first word that was looked for, in one line."""
    found = _pattern(tuple(term.words[0] for term in terms)).search(text)
    start = max(0, (found.start() if found else 0) - EXCERPT // 3)
    cut = " ".join(text[start : start + EXCERPT].split())
    return f"{'…' if start else ''}{cut}{'…' if start + EXCERPT < len(text) else ''}"


@lru_cache(maxsize=1)
def _word() -> re.Pattern[str]:
    # Compiled with the first text that needs it: that takes longer than everything else about opening a ledger.
    return re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]{{1,{LONGEST_WORD}}}")


@lru_cache(maxsize=64)
def _pattern(starts: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(r"(?<!\w)(?:" + "|".join(map(re.escape, starts)) + ")", re.IGNORECASE)
