"""Reads the definition of an outcome: the form of our own tools and that of the vendor. Pure.

Our form is `{title, detail, successCriteria[]}`, in which a criterion is a text or `{text, check}`. The vendor's form is
`{description, rubric, max_iterations}`; every list item of the rubric is a criterion.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from fidelio.errors import UsageProblem
from fidelio.ids import new_id
from fidelio.ledger.long_text import sanitize_text, shorten_to_line
from fidelio.ledger.model import NewEvent
from fidelio.runtime import events as e
from fidelio.runtime.outcomes.checks import read_check
from fidelio.runtime.outcomes.record import Criterion, Outcome, OutcomesRecord

MAX_TITLE = 200
MAX_DETAIL = 4_000
MAX_CRITERIA = 20
MAX_TEXT = 4_000
MAX_RUBRIC = 40_000
MAX_ITERATIONS = 20
DEFAULT_ITERATIONS = 3
# Of each author, so that an agent cannot keep a person from defining one.
MAX_OUTCOMES = 10

Author = Literal["person", "agent"]

_ITEM = re.compile(r"\s*(?:[-*+•]|\d{1,3}[.)])\s+(?:\[[ xX]\]\s+)?(?P<text>\S.*)")
_HEADING = re.compile(r"\s*(?:#{1,6}\s|[-=*_]{3,}\s*$)")


class _Rubric(msgspec.Struct, frozen=True):
    content: Annotated[str, Meta(max_length=MAX_RUBRIC)] = ""
    text: Annotated[str, Meta(max_length=MAX_RUBRIC)] = ""


class _Body(msgspec.Struct, frozen=True):
    """Both forms. Other keys of an event are ignored."""

    title: Annotated[str, Meta(max_length=MAX_TITLE)] | None = None
    detail: Annotated[str, Meta(max_length=MAX_DETAIL)] | None = None
    criteria: Annotated[tuple[str | dict[str, Any], ...], Meta(max_length=MAX_CRITERIA)] | None = msgspec.field(
        name="successCriteria", default=None
    )
    description: Annotated[str, Meta(max_length=MAX_DETAIL)] | None = None
    rubric: Annotated[str, Meta(max_length=MAX_RUBRIC)] | _Rubric | None = None
    max_iterations: Annotated[int, Meta(ge=1, le=MAX_ITERATIONS)] | None = None
    max_iterations_camel: Annotated[int, Meta(ge=1, le=MAX_ITERATIONS)] | None = msgspec.field(
        name="maxIterations", default=None
    )


def parse_outcome(body: Mapping[str, Any], *, author: Author, by: str = "", wake: str = "") -> NewEvent:
    """The event that defines an outcome. `by` is the person's name, `wake` the wake in which an agent defines it.

    Raises `UsageProblem`, which names the field.
    """
    try:
        data = msgspec.convert(dict(body), _Body)
    except msgspec.ValidationError as error:
        raise _refuse(str(error)) from error
    description = (data.description or "").strip()
    title = shorten_to_line(data.title or description, MAX_TITLE)
    if not title:
        raise _refuse("title is empty")
    detail = (data.detail or "").strip() or (description if description != title else "")
    criteria = tuple(_parse_criteria(data)) or (Criterion(_clip(description or title)),)
    stored = {
        "outcome_id": new_id("outc_", 20),
        "title": title,
        "detail": sanitize_text(detail),
        "criteria": [_store_criterion(criterion) for criterion in criteria],
        "author": author,
        "max_iterations": data.max_iterations or data.max_iterations_camel or DEFAULT_ITERATIONS,
        **({"wake_id": wake} if wake else {}),
    }
    return NewEvent(type=e.OUTCOME_DEFINED, body=stored, actor=by or author)


def _refuse(problem: str) -> UsageProblem:
    remedy = "An outcome has a title, and may have a detail and successCriteria: texts, or {text, check}."
    return UsageProblem(f"The outcome cannot be used: {problem}.", remedy=remedy)


def _clip(text: str) -> str:
    return sanitize_text(text).strip()[:MAX_TEXT]


def _store_criterion(criterion: Criterion) -> dict[str, Any]:
    return {"text": criterion.text, **({"check": criterion.check} if criterion.check else {})}


def _parse_criteria(data: _Body) -> Iterator[Criterion]:
    """The criteria without repetitions."""
    items = [*(data.criteria or ()), *split_rubric(_read_rubric(data.rubric))]
    if len(items) > MAX_CRITERIA:
        raise _refuse(f"it has {len(items)} criteria, and at most {MAX_CRITERIA} are allowed")
    seen: set[bytes] = set()
    for number, item in enumerate(items, 1):
        criterion = _parse_criterion(item, number)
        key = msgspec.json.encode(criterion, order="deterministic")
        if key not in seen:
            seen.add(key)
            yield criterion


def _parse_criterion(item: str | dict[str, Any], number: int) -> Criterion:
    where = f"criterion {number}"
    data = {"text": item} if isinstance(item, str) else item
    text, check = data.get("text"), data.get("check")
    if unknown := set(data) - {"text", "check"}:
        raise _refuse(f"{where} has the unknown field {min(unknown)!r:.80}")
    if not isinstance(text, str) or not text.strip():
        raise _refuse(f"{where} has no text")
    if len(text) > MAX_TEXT:
        raise _refuse(f"{where} has {len(text)} characters, and at most {MAX_TEXT} are allowed")
    if check is None:
        return Criterion(_clip(text))
    if not isinstance(check, Mapping):
        raise _refuse(f"the check of {where} is not an object")
    read_check(check, where)
    return Criterion(_clip(text), dict(check))


def _read_rubric(rubric: str | _Rubric | None) -> str:
    if isinstance(rubric, _Rubric):
        return rubric.content or rubric.text
    return rubric or ""


def split_rubric(text: str) -> tuple[str, ...]:
    """The list items of a text; lines that follow an item belong to it. A text without a list is a single criterion."""
    items: list[str] = []
    is_in_item = False
    for line in text.splitlines():
        if found := _ITEM.match(line):
            items.append(found["text"].strip())
            is_in_item = True
        elif not line.strip() or _HEADING.match(line):
            is_in_item = False
        elif is_in_item:
            items[-1] += f" {line.strip()}"
    if items:
        return tuple(items)
    return (" ".join(text.split()),) if text.strip() else ()


def check_definition(record: OutcomesRecord, event: NewEvent) -> Outcome | None:
    """The outcome that a definition replaces, if any. Raises `UsageProblem` if it must not be added or must not replace."""
    known = record.find_title(event.body["title"])
    author = event.body["author"]
    if known is not None and known.author == "person" and author == "agent":
        raise UsageProblem(
            f"The outcome {known.title!r:.100} was defined by a person; an agent cannot replace it.",
            remedy="Work towards it, or add another outcome with another title.",
        )
    if known is None and sum(outcome.author == author for outcome in record.outcomes) >= MAX_OUTCOMES:
        raise UsageProblem(
            f"This session has {MAX_OUTCOMES} outcomes of this author already.",
            remedy="Replace one by defining an outcome with its title.",
        )
    return known
