"""Whether a move that an agent asks for is one that the definition knows, and whether what it says about it is so.

An agent's claim is compared with every way to its target, because two ways may lead there. It is called untrue only when an
answer or a reported variable contradicts it: a default that nobody confirmed proves nothing against an agent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fidelio.engine import phrases
from fidelio.engine.condition_text import same_words, says
from fidelio.engine.problems import Problem
from fidelio.engine.scope import left_out
from fidelio.engine.state import Record
from fidelio.engine.transitions import TERMINAL, Way, edges, ends_workflow, exists, is_lost, ways
from fidelio.engine.variables import report_these, without_value

if TYPE_CHECKING:
    from fidelio.definitions.models import Activity, Workflow

_DEFAULT_CLAIMS = ("", "default")


def check_transition(workflow: Workflow, record: Record, target: str, claim: str | None = None) -> list[Problem]:
    """What is wrong with going to `target`, and with the condition that is claimed for it."""
    found = ways(workflow, record)
    if is_lost(workflow, record):
        return [_stands_nowhere(workflow, record, begins=bool(_leading_to(workflow, found, target)))]
    return _is_direct(workflow, record, target, found) or [
        *_compared(workflow, record, target, claim, found),
        *_holds(workflow, record, target, claim, found),
    ]


def check_claim(workflow: Workflow, record: Record, target: str, claim: str | None) -> list[Problem]:
    """Compares a claimed condition with those of all ways to the target; None claims nothing."""
    return _compared(workflow, record, target, claim, ways(workflow, record))


def _compared(workflow: Workflow, record: Record, target: str, claim: str | None, found: Sequence[Way]) -> list[Problem]:
    leading = _leading_to(workflow, found, target)
    if claim is None or not leading or not record.activity or any(_fits(claim, way) for way in leading):
        return []
    texts = list(dict.fromkeys(way.condition for way in leading if way.condition))
    if not texts:
        return [Problem("claim", phrases.claims_condition_of_default(target, claim))]
    return [Problem("claim", phrases.claims_other_condition(target, claim or "default", texts))]


def check_drift(record: Record, version: str, definition: str) -> list[Problem]:
    """Whether the definition is still the one that the session started with."""
    if record.version and record.version != version:
        return [Problem("drift", phrases.version_drift(record.version, version), advisory=True)]
    if record.definition and record.definition != definition:
        return [Problem("drift", phrases.content_drift(version), advisory=True)]
    return []


def check_skill(workflow: Workflow, record: Record) -> list[Problem]:
    """Whether the skill that was loaded last belongs to where the session stands. An activity without skills takes any."""
    activity = workflow.activity(record.activity)
    if activity is None or not record.skill:
        return []
    steps = (*activity.steps, *(step for loop in activity.loops for step in loop.steps))
    own = {activity.skills.primary, *activity.skills.supporting, *(step.skill for step in steps)} - {None}
    if not own or record.skill in {*own, workflow.skills.primary, *workflow.skills.supporting}:
        return []
    return [Problem("skill", phrases.skill_elsewhere(record.skill, activity.id), advisory=True)]


def fits_any(claim: str, activity: Activity) -> bool:
    """Whether the claim words the condition of any way out of the activity."""
    if claim.strip().lower() in _DEFAULT_CLAIMS:
        return True
    return any(same_words(claim, edge.text) or (edge.condition and says(claim, edge.condition)) for edge in edges(activity))


def _fits(claim: str, way: Way) -> bool:
    if claim.strip().lower() in _DEFAULT_CLAIMS:
        # Whoever follows an answer need not repeat it: the answer is in the record.
        return way.default or not way.condition or (way.kind == "answer" and way.open)
    return same_words(claim, way.condition) or (way.when is not None and says(claim, way.when))


def _stands_nowhere(workflow: Workflow, record: Record, *, begins: bool) -> Problem:
    """Where the definition begins is the one place that it still names; going there is only pointed out."""
    sentence = phrases.activity_gone(record.activity, unreadable=record.activity in workflow.broken)
    return Problem("activity-gone", sentence, "Restore it, or start a new session.", advisory=begins)


def _is_direct(workflow: Workflow, record: Record, target: str, found: Sequence[Way]) -> list[Problem]:
    if target == record.activity or workflow.independent:
        return []
    if _leading_to(workflow, found, target):
        return []
    valid = list(dict.fromkeys(way.to for way in found))
    activity = workflow.activity(record.activity)
    if activity is None:
        return [Problem("first-activity", phrases.first_activity(", ".join(valid), target))]
    if target in left_out(workflow, record) and any(edge.to == target for edge in edges(activity)):
        return [Problem("left-out", phrases.left_out(target), f"Go on with one of {phrases.names(valid)}.")]
    if not any(edges(activity)):
        return [Problem("not-direct", phrases.nothing_leads_on(activity.id, target), doubt=True)]
    return [Problem("not-direct", phrases.not_direct(target, activity.id, valid))]


def _holds(workflow: Workflow, record: Record, target: str, claim: str | None, found: Sequence[Way]) -> list[Problem]:
    if target == record.activity or workflow.independent or not record.activity:
        return []
    if record.forced and exists(workflow, record.forced) and not _same(workflow, record.forced, target):
        return [Problem("not-held", phrases.answer_leads_elsewhere(target, record.forced))]
    everything = ways(workflow, record, told=True) if _depends_on_values(workflow, record, found) else found
    leading = _leading_to(workflow, everything, target)
    # Whoever names one of several ways to the target claims that this one is open, not another.
    claimed = [way for way in leading if claim is not None and way.when is not None and _fits(claim, way)] or leading
    if claimed and all(way.holds is False for way in claimed):
        return [Problem("not-held", phrases.does_not_hold(target, _because(claimed[0], everything)))]
    first = next((way for way in everything if way.holds and way.when is not None and way.open), None)
    if first is not None and leading and not any(way.open or way.kind in ("loop", "answer") for way in leading):
        return [Problem("not-held", phrases.does_not_hold(target, f"'{first.condition}' holds and comes first"))]
    return _doubts(workflow, record, target, found)


def _depends_on_values(workflow: Workflow, record: Record, found: Iterable[Way]) -> bool:
    """Whether it makes a difference who said what. Going around what is left out may hide a condition."""
    return any(way.when is not None for way in found) or bool(left_out(workflow, record))


def _doubts(workflow: Workflow, record: Record, target: str, everything: Sequence[Way]) -> list[Problem]:
    leading = _leading_to(workflow, everything, target)
    if any(way.holds or way.kind == "loop" for way in leading):
        return []
    if all(_same(workflow, way.to, target) for way in everything if way.open):
        # Whatever the conditions come to, this is where it goes on.
        return []
    conditions = [way.when for way in (leading if all(way.when for way in leading) else everything) if way.when]
    open_names = without_value(conditions, workflow, record)
    remedy = report_these(workflow, open_names) if open_names else "Answer the checkpoint that leads there."
    return [Problem("not-known", phrases.not_known(target, open_names), remedy, doubt=True)]


def _because(way: Way, everything: Sequence[Way]) -> str:
    if way.kind == "answer":
        return f"the answer was not '{way.condition}'"
    if way.when is not None and not way.default:
        return f"'{way.condition}' is not so"
    other = next((other for other in everything if other.when is not None and other.holds), None)
    return f"'{other.condition}' holds" if other else "something else holds"


def _leading_to(workflow: Workflow, found: Iterable[Way], target: str) -> list[Way]:
    return [way for way in found if _same(workflow, way.to, target)]


def _same(workflow: Workflow, left: str, right: str) -> bool:
    return _end_as_one(workflow, left) == _end_as_one(workflow, right)


def _end_as_one(workflow: Workflow, target: str) -> str:
    return TERMINAL if ends_workflow(workflow, target) else target
