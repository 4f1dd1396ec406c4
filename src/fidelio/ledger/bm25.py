"""BM25 of the rows of a ranked search: the words of a query, what of them a row contains, its value, and the hit. Pure."""

from __future__ import annotations

import math
from typing import Any, Literal, TypeAlias

import msgspec

from fidelio.errors import BadQuery
from fidelio.ledger.model import RankedHit, RankQuery, decode_body
from fidelio.ledger.search import cut_excerpt, tokenize

HitSource: TypeAlias = Literal["event", "document", "text"]

MAX_WORDS = 64
K1, B = 1.2, 0.75


class RankRow(msgspec.Struct, frozen=True):
    """A loaded row. An event has `seq` and `event`, its id; a document has `space`, `path` and `version`."""

    key: int
    session: str | None
    type: str
    time: int
    raw: str
    seq: int | None = None
    event: str | None = None
    space: str | None = None
    path: str | None = None
    version: int | None = None


class QueryWords(msgspec.Struct, frozen=True):
    """The words of a query. `wanted` are those of its terms; the others belong to phrases only."""

    wanted: frozenset[str]
    phrases: tuple[tuple[str, ...], ...]
    every: tuple[str, ...]


class ScoredRow(msgspec.Struct, frozen=True):
    """A row, what of the query it contains, and its length in words."""

    source: HitSource
    row: RankRow
    frequencies: dict[str, int]
    phrases: dict[tuple[str, ...], int]
    length: int


def parse_words(query: RankQuery) -> QueryWords:
    """Split the terms and phrases of a query into words; raise `BadQuery` if there are none or too many."""
    wanted = dict.fromkeys(word for term in query.terms for word in tokenize(term))
    phrases = dict.fromkeys(tuple(tokenize(phrase)) for phrase in query.phrases)
    wanted |= dict.fromkeys(phrase[0] for phrase in phrases if len(phrase) == 1)
    longer = tuple(phrase for phrase in phrases if len(phrase) > 1)
    every = tuple(wanted | dict.fromkeys(word for phrase in longer for word in phrase))
    if not every:
        raise BadQuery("The query has no word in it.", remedy="Use at least one word of letters or digits.")
    if len(every) > MAX_WORDS:
        raise BadQuery(f"The query has {len(every)} different words.", remedy=f"Use up to {MAX_WORDS}.")
    return QueryWords(frozenset(wanted), longer, every)


def weigh_word(rows: int, total: int) -> float:
    """The inverse document frequency of a word."""
    rows = min(rows, total)
    return math.log(1 + (total - rows + 0.5) / (rows + 0.5))


def compute_bm25(row: ScoredRow, weights: dict[str, float], average: float) -> float:
    """Compute the BM25 value of a row. A phrase has the weight of its rarest word: it is in no more rows than that."""
    damping = K1 * (1 - B + B * row.length / (average or 1))
    terms = [(weights[word], count) for word, count in row.frequencies.items()]
    terms += [(max(weights[word] for word in phrase), count) for phrase, count in row.phrases.items()]
    return round(sum(weight * count * (K1 + 1) / (count + damping) for weight, count in terms), 6)


def order(scored: tuple[float, ScoredRow]) -> tuple[float, int, str, int]:
    relevance, found = scored
    return -relevance, -found.row.time, found.source, -found.row.key


def read_texts(query: RankQuery, words: QueryWords) -> list[ScoredRow]:
    rows = [RankRow(0, None, "text", 0, text, path=name) for name, text in query.texts.items()]
    found = (find_words("text", row, words) for row in rows)
    return [row for row in found if row.frequencies or row.phrases]


def find_words(source: HitSource, row: RankRow, words: QueryWords) -> ScoredRow:
    texts = _list_texts(source, row)
    tokens = tokenize("\n".join(texts))
    frequencies: dict[str, int] = {}
    for token in [token for token in tokens if token in words.wanted]:
        frequencies[token] = frequencies.get(token, 0) + 1
    found = [phrase for phrase in words.phrases if _count_phrase(phrase, tokens)]
    # A phrase does not reach from one text into the next.
    by_text = [tokenize(text) for text in texts] if found else []
    phrases = {phrase: sum(_count_phrase(phrase, each) for each in by_text) for phrase in found}
    return ScoredRow(source, row, frequencies, {phrase: count for phrase, count in phrases.items() if count}, len(tokens))


def _list_texts(source: str, row: RankRow) -> list[str]:
    if source == "event":
        return list_texts(decode_body(row.raw))
    return [row.path or "", row.raw] if source == "document" else [row.raw]


def list_texts(body: Any) -> list[str]:
    """The values of `iter_fields` without their paths, which are most of its cost."""
    texts: list[str] = []
    waiting = [body]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            texts.append(value)
        elif isinstance(value, dict):
            waiting.extend(reversed(value.values()))
        elif isinstance(value, list):
            waiting.extend(reversed(value))
        elif isinstance(value, int) and not isinstance(value, bool):
            texts.append(str(value))
    return texts


def _count_phrase(phrase: tuple[str, ...], tokens: list[str]) -> int:
    """How often the words stand in a row."""
    if phrase[0] not in tokens or phrase[-1] not in tokens:
        return 0
    whole, size = list(phrase), len(phrase)
    return sum(tokens[at : at + size] == whole for at in range(len(tokens) - size + 1) if tokens[at] == phrase[0])


def to_hit(relevance: float, scored: ScoredRow) -> RankedHit:
    row = scored.row
    phrases = tuple(" ".join(phrase) for phrase in scored.phrases)
    present = frozenset((*scored.frequencies, *(word for phrase in scored.phrases for word in phrase)))
    return RankedHit(
        source=scored.source,
        relevance=relevance,
        words=tuple(scored.frequencies),
        phrases=phrases,
        excerpt=cut_excerpt(_list_texts(scored.source, row), present),
        raw=row.raw,
        type=row.type,
        session=row.session,
        seq=row.seq,
        event=row.event,
        time=row.time,
        space=row.space,
        path=row.path,
        version=row.version,
    )
