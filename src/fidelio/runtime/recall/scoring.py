"""Relevance of what recall has found: that of the text, the priors, the reasons, and the merge of several evidences. Pure.

The relevance is the `score` of a hit. That of a text is its BM25 value, 10 for the best of a search.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from fidelio.ledger.search import tokenize
from fidelio.runtime.navigation.summaries import Relation, find_relation, match_setup
from fidelio.runtime.outcomes.record import Outcome
from fidelio.runtime.recall.model import Candidate, Found, Source, VisibleSession
from fidelio.runtime.recall.query import RecallQuery

BEST_TEXT = 10.0
BASE: Mapping[Source, int] = {
    "learning": 5,
    "workspace_memory": 3,
    "workspace_memory_notes": 4,
    "session_checkpoint": 1,
    "session_evaluation": 3,
    "session_outcome": 2,
    "session_context": 2,
    "session_trace": 3,
}
SETUP = 2
SAME_TITLE = 3
MAX_OVERLAP = 2
RELATION: Mapping[Relation, int] = {"child": 2, "parent": 2, "sibling": 1}
# Notes of a session: its outcome and its relation are told, but do not make them better.
_NOTES: frozenset[Source] = frozenset({"session_state", "working_buffer", "shell_state"})
_MIN_CRITERION_WORD = 3


def weigh_found(found: Iterable[Found], own: VisibleSession) -> list[Candidate]:
    """Compute the relevance of all that was found. What has nothing of the query is dropped before the priors."""
    matching = [each for each in found if each.relevance > 0]
    best: dict[str, float] = {}
    for each in matching:
        best[each.scale] = max(best.get(each.scale, 0.0), each.relevance)
    return [_weigh(each, BEST_TEXT * each.relevance / best[each.scale], own) for each in matching]


def merge(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Merge candidates that are about the same, best first.

    The strongest gives the fields; every further evidence adds 1 to its relevance, once.
    """
    groups: dict[tuple[str, ...], list[Candidate]] = {}
    for candidate in sorted(candidates, key=order):
        groups.setdefault(_find_key(candidate.found), []).append(candidate)
    return sorted((_merge_group(group) for group in groups.values()), key=order)


def order(candidate: Candidate) -> tuple[float, bool, bool, int]:
    """Sort key: relevance, then the same setup, then a relation, then the newest."""
    return -candidate.relevance, candidate.setup_matches is not True, candidate.relation is None, -candidate.found.time


def explain(candidates: Iterable[Candidate], query: RecallQuery) -> list[Candidate]:
    """Add to the reasons what the texts of candidates have in common with the query, in whole words."""
    whole = _pad(query.normalized)
    pieces = {
        "exact-phrase": query.phrases,
        "path-match": query.path_terms,
        "identifier-match": query.identifiers,
        "term-overlap": query.terms,
    }
    padded = {label: [words for piece in found if (words := _pad(piece)).strip()] for label, found in pieces.items()}
    return [_explain(candidate, whole, padded) for candidate in candidates]


def _explain(candidate: Candidate, whole: str, padded: Mapping[str, Sequence[str]]) -> Candidate:
    # Two spaces between two texts: no words reach from one into the next.
    text = " ".join([_pad(text) for text in dict.fromkeys(candidate.texts)])
    counts = {label: sum(map(text.__contains__, found)) for label, found in padded.items()}
    common = [f"{label}:{count}" for label, count in counts.items() if count]
    return replace(candidate, reasons=(*(["exact-query"] if whole in text else []), *common, *candidate.reasons))


def _weigh(found: Found, text_relevance: float, own: VisibleSession) -> Candidate:
    reasons: list[str] = []
    relevance = text_relevance + BASE.get(found.source, 0)
    setup, relation = None, None
    if found.session is not None:
        setup = match_setup(own.record, found.session.record)
        related = find_relation(own.session, found.session.session)
        relation = related if related != "self" else None
        affinity, about_outcome = _compare_outcomes(own, found.session)
        counted = found.source not in _NOTES
        relevance += SETUP * (setup is True) + counted * (affinity + (RELATION[relation] if relation else 0))
        reasons += [*(["setup-match"] if setup else []), *about_outcome, *([f"relation:{relation}"] if relation else [])]
    return Candidate(
        found=found,
        relevance=round(relevance, 3),
        text_relevance=round(text_relevance, 3),
        reasons=tuple(reasons),
        setup_matches=setup,
        relation=relation,
        evidences=((found.backend, found.source),),
        texts=(found.text,),
    )


def _compare_outcomes(own: VisibleSession, other: VisibleSession) -> tuple[int, list[str]]:
    """How close the outcomes of two sessions are, and why. A session is not close to itself."""
    mine, theirs = own.record.outcomes.active, other.record.outcomes.active
    if mine is None or theirs is None or own.id == other.id:
        return 0, []
    is_same = mine.title.casefold() == theirs.title.casefold()
    overlap = len(_list_criterion_words(mine) & _list_criterion_words(theirs))
    reasons = [*(["outcome-title"] if is_same else []), *([f"outcome-criteria:{overlap}"] if overlap else [])]
    return SAME_TITLE * is_same + min(MAX_OVERLAP, overlap), reasons


def _list_criterion_words(outcome: Outcome) -> set[str]:
    words = (word for criterion in outcome.criteria for word in tokenize(criterion.text))
    return {word for word in words if len(word) >= _MIN_CRITERION_WORD}


def _find_key(found: Found) -> tuple[str, ...]:
    """What makes two candidates the same: a wake, an event of a session or its memory as a whole, or the text."""
    if found.session is None:
        return ("content", found.source, found.text)
    if found.wake and not found.event:
        return ("wake", found.session.id, found.wake)
    return ("anchor", found.session.id, found.event)


def _merge_group(group: Sequence[Candidate]) -> Candidate:
    strongest = group[0]
    evidences = tuple(dict.fromkeys(pair for candidate in group for pair in candidate.evidences))
    reasons = tuple(dict.fromkeys(reason for candidate in group for reason in candidate.reasons))
    texts = tuple(text for candidate in group for text in candidate.texts)
    relevance = round(strongest.relevance + len(evidences) - 1, 3)
    return replace(strongest, relevance=relevance, reasons=reasons, evidences=evidences, texts=texts)


def _pad(text: str) -> str:
    """The words of a text with a space around each."""
    return f" {' '.join(tokenize(text))} "
