"""What the report of a worker amounts to in an activity that is led stretch by stretch: events, or what is wrong with it.

The steps are put on record one by one, as the rules take them from any session that is led, and so are the workflows that they
start. A report that lacks a step is not taken at all: the worker is told what is missing, and hands it in anew. One that does
its part is taken, whatever else has to be found out behind it, so that nobody is asked twice.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from fidelio.conductor import prompts
from fidelio.conductor.segments import Stretch, in_doubt, steps_ahead, steps_here
from fidelio.engine import phrases
from fidelio.engine.answers import AnswerContext
from fidelio.engine.apply_move import MoveActor, MoveRequest, apply_move
from fidelio.engine.manifests import StepReport, check_step_manifest
from fidelio.engine.record import EventDraft, Record, fold_drafts
from fidelio.engine.state import Refusal
from fidelio.engine.triggers import TriggerMatch, find_fired_triggers
from fidelio.engine.variables import check_report, check_size, draft_report, find_unset_variables, suggest_report

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fidelio.conductor.manifests import Manifest
    from fidelio.definitions.models import Workflow


class Taken(msgspec.Struct, frozen=True):
    """The events of a report, the record after them, and the workflows that its last step starts."""

    drafts: tuple[EventDraft, ...]
    after: Record
    starts: tuple[TriggerMatch, ...] = ()


class Wrong(msgspec.Struct, frozen=True):
    """Why a report is not taken, in words for the worker."""

    problems: tuple[str, ...]


def take(
    workflow: Workflow, record: Record, stretch: Stretch, manifest: Manifest, how: AnswerContext, agent: str
) -> Taken | Wrong:
    steps = [entry for entry in manifest.steps if entry.step_id not in _done(record)]
    told = draft_report(workflow, record, manifest.variables, agent, person=how.demands_person)
    informed = fold_drafts(record, told, how.now)
    problems = [
        *(problem.sentence for problem in check_report(workflow, record, manifest.variables, person=how.demands_person)),
        *(problem.sentence for problem in check_step_manifest(workflow, informed, steps, leaving=False)),
        *_out_of_turn(stretch, steps),
    ]
    no = check_size(record.variables, manifest.variables)
    if no is not None or problems:
        return Wrong(tuple(dict.fromkeys([*problems, *([no.sentence] if no is not None else [])])))
    return _completed(workflow, stretch, steps, Taken(tuple(told), informed), how, MoveActor(f"agent:{agent}"))


def on_leaving(record: Record, stretch: Stretch, manifest: Manifest) -> Manifest | Wrong:
    """What is left of a report when an answer leads elsewhere: no step that starts a workflow, because none is started."""
    steps = [entry for entry in manifest.steps if entry.step_id not in _done(record)]
    strange = tuple(_out_of_turn(stretch, steps))
    starting = {step.id for step in stretch.steps if step.triggers}
    return Wrong(strange) if strange else replace(manifest, steps=tuple(one for one in steps if one.step_id not in starting))


def without(workflow: Workflow, record: Record, taken: Taken, begun: Counter[str]) -> Taken:
    """The report without those workflows that have begun already, beyond what earlier steps of the pass have started."""
    before = (step for step in steps_here(workflow, record) if step.id in _done(record))
    surplus = begun - Counter(trigger.workflow for step in before for trigger in step.triggers)
    starts = list[TriggerMatch]()
    for one in taken.starts:
        if surplus[one.workflow]:
            surplus[one.workflow] -= 1
        else:
            starts.append(one)
    return replace(taken, starts=tuple(starts))


def owed(workflow: Workflow, record: Record, stretch: Stretch) -> list[str]:
    """What is still missing of a stretch whose report is on record."""
    asks, wants = _open(workflow, record, stretch)
    return [
        *_missing(workflow, record, stretch),
        *(prompts.to_ask(name) for name in asks),
        *([prompts.undecided(workflow, wants)] if wants else ()),
    ]


def _completed(
    workflow: Workflow, stretch: Stretch, steps: Sequence[StepReport], taken: Taken, how: AnswerContext, actor: MoveActor
) -> Taken | Wrong:
    record = taken.after
    for entry in steps:
        act = MoveRequest("complete_step", entry.step_id, output=entry.output)
        found = apply_move(workflow, taken.after, act, how, actor)
        if isinstance(found, Refusal):
            return Wrong((f"{found.sentence} {found.remedy}".strip(),))
        taken = Taken((*taken.drafts, *found), fold_drafts(taken.after, found, how.now))
    starts = tuple(
        one for entry in steps[-1:] for one in find_fired_triggers(workflow, record, taken.after, entry.step_id) if one.step
    )
    if _missing(workflow, taken.after, stretch) or _settles_nothing(workflow, taken.after, stretch):
        return Wrong(tuple(owed(workflow, taken.after, stretch)))
    return Taken(taken.drafts, taken.after, starts)


def _missing(workflow: Workflow, record: Record, stretch: Stretch) -> list[str]:
    ahead = [task for task in steps_ahead(workflow, record) if task.id in stretch.names and task.step is not None]
    missing = [task.id for task in ahead if task.must]
    found = [phrases.missing_steps(missing)] if missing else []
    for task in ahead:
        if task.step is not None and task.step.required and not task.must and task.step.condition is not None:
            names = find_unset_variables([task.step.condition], workflow, record)
            found.append(f"{phrases.step_undecided(task.id, names)} {suggest_report(workflow, names)}")
    return found


def _open(workflow: Workflow, record: Record, stretch: Stretch) -> tuple[list[str], list[str]]:
    """What the stretch is to ask and to find out, as far as that is still to be done."""
    doubt = in_doubt(workflow, record) or Stretch()
    return [name for name in stretch.asks if name in doubt.asks], [name for name in stretch.wants if name in doubt.wants]


def _settles_nothing(workflow: Workflow, record: Record, stretch: Stretch) -> bool:
    asked = [*stretch.asks], [*stretch.wants]
    return any(asked) and _open(workflow, record, stretch) == asked


def _out_of_turn(stretch: Stretch, steps: Sequence[StepReport]) -> Iterator[str]:
    strange = [entry.step_id for entry in steps if entry.step_id not in stretch.names]
    if strange:
        yield prompts.out_of_turn(dict.fromkeys(strange), stretch.names)


def _done(record: Record) -> frozenset[str]:
    """The steps of the pass that is running, else of the activity; what is called the same elsewhere is another step."""
    return frozenset((record.here.running or record.here).done)
