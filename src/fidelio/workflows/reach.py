"""Whether a definition that is not to be had is gone.

It is only where it was looked for in the place that it came from, and where the system let anybody look. Another server of the
same home may look elsewhere, and one that has no descriptors left sees no file at all: nothing ends on such grounds.
"""

from __future__ import annotations

from fidelio.definitions.library import Library, Version
from fidelio.engine.record import Record
from fidelio.errors import DefinitionOutOfReach, WorkflowNotFound
from fidelio.workflows.desk import Desk, Opened
from fidelio.workflows.search_path import is_at, looks_in


def refuse_uncertain(desk: Desk, opened: Opened, why: str) -> None:
    """Raises where nobody can tell whether the definition is gone; `why` says what was found in its stead."""
    record, session = opened.record, opened.session.id
    if desk.rules.chosen_place or _looked_at(desk.library, record):
        return
    if not record.found_in:
        sentence = "The record does not say where the definition of this session came from: nobody can tell whether it is gone."
        remedy = f"Put its files back, or let a person end the session: fidelio sessions --end {session}."
    else:
        sentence = "This server does not look in the place that the definition of this session came from."
        remedy = f"Call a server that does (`--workflows PLACE`); the place is in `fidelio report {session}`."
    raise DefinitionOutOfReach(f"{why} {sentence}", remedy=remedy)


def not_given(why: str) -> DefinitionOutOfReach:
    """The system does not let anybody look."""
    return DefinitionOutOfReach(
        f"The definition of this session cannot be looked at: {why}",
        remedy="Nothing was changed by this call: make it again once that is mended.",
    )


def is_hidden(version: Version, record: Record) -> bool:
    """Whether the system keeps back the activity that the session stands in or begins with."""
    if not version.out_of_reach:
        return False
    workflow = version.workflow
    here = record.activity or workflow.initial_activity
    return workflow.activity(here) is None if here else not workflow.activities


def _looked_at(library: Library, record: Record) -> bool:
    """Whether what was found, or not, is what the place of the session has."""
    try:
        root = library.root(record.workflow)
    except WorkflowNotFound:
        return looks_in(library, record.found_in)
    return is_at(root, record.found_in)
