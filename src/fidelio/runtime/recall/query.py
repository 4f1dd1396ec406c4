"""Analysis of a query for recall: phrases, terms, paths and identifiers. Pure.

The pieces become words and phrases for the ledger, and reasons that say what a hit has in common with the query. Both compare
whole words: `cat` does not match `category`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from fidelio.ledger.bm25 import MAX_WORDS
from fidelio.ledger.search import tokenize

# Words that are searched for; each is counted in the index, in about 0.15 ms. A wake searches with fewer.
MAX_TERMS = 32
MAX_AUTOMATIC_TERMS = 12
assert 2 * MAX_TERMS <= MAX_WORDS
MIN_PHRASE, MAX_PHRASE = 2, 160
STOP_WORDS = frozenset(tokenize("a an and are for from how in is it of on or that the this to with"))
_QUOTED = re.compile(r'"([^"]*)"|`([^`]*)`')
_STRUCTURED = re.compile(r"[\w./:#-]+")
# Signs at the end of a token that end a sentence and belong to no path.
_ENDING = ".:-#"


class RecallQuery(msgspec.Struct, frozen=True):
    """The pieces of a query, each in lower case and once, in the order of the text."""

    normalized: str
    phrases: tuple[str, ...] = ()
    terms: tuple[str, ...] = ()
    path_terms: tuple[str, ...] = ()
    identifiers: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether it has no word that could be searched for."""
        return not any(tokenize(piece) for piece in (*self.terms, *self.phrases))


class SearchWords(msgspec.Struct, frozen=True):
    """What of a query the ledger searches for: any of the words, and phrases, which count more."""

    words: tuple[str, ...]
    phrases: tuple[str, ...]


def analyze_query(text: str) -> RecallQuery:
    """Split a query into its pieces."""
    normalized = normalize(text)
    structured = [token for run in _STRUCTURED.findall(normalized) if (token := run.rstrip(_ENDING))]
    return RecallQuery(
        normalized=normalized,
        phrases=_unique(_find_phrases(normalized)),
        terms=_unique(_find_terms(normalized)),
        path_terms=_unique(token for token in structured if any(sign in token for sign in "/.:")),
        identifiers=_unique(token for token in structured if _is_identifier(token)),
    )


def normalize(text: str) -> str:
    """The text in lower case, with single spaces."""
    return " ".join(text.lower().split())


def choose_words(query: RecallQuery, limit: int = MAX_TERMS) -> SearchWords:
    """Choose what is searched for. Of a long query these are the first exact pieces and the longest words."""
    phrases: dict[str, None] = {}
    used: dict[str, None] = {}
    for piece in (*query.phrases, *query.path_terms, *query.identifiers):
        tokens = tokenize(piece)
        if len(tokens) > 1 and len(used.keys() | set(tokens)) <= limit:
            phrases[" ".join(tokens)] = None
            used |= dict.fromkeys(tokens)
    tokens = [token for term in query.terms for token in tokenize(term)]
    words = _unique(token for token in tokens if len(token) > 1 and token not in STOP_WORDS) or _unique(tokens)
    # A long word is nearly always a rare word, which finds more.
    longest = frozenset(sorted(words, key=len, reverse=True)[:limit])
    return SearchWords(tuple(word for word in words if word in longest), tuple(phrases))


def _find_phrases(normalized: str) -> Iterable[str]:
    for double, single in _QUOTED.findall(normalized):
        phrase = (double or single).strip()
        if MIN_PHRASE <= len(phrase) <= MAX_PHRASE:
            yield phrase


def _find_terms(normalized: str) -> Iterable[str]:
    words = [word for word in normalized.split() if len(word) > 1] or normalized.split()
    return [word for word in words if word not in STOP_WORDS] or words


def _is_identifier(token: str) -> bool:
    # Nearly all tokens are plain words or numbers, for which this is enough.
    if token.isalpha() or token.isdigit():
        return False
    has_both = any(map(str.isdigit, token)) and any(map(str.isalpha, token))
    return has_both or any(sign in token.strip("_-") for sign in "_-")


def _unique(items: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(items))
