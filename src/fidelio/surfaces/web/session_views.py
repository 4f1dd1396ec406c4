"""A session in a list and at the head of its page: what it is called, its state, and what a person can do with it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

import msgspec

from fidelio.app.erasure import DELETABLE
from fidelio.ledger.model import Session
from fidelio.orchestrator.record.model import ACTIVE_STATES
from fidelio.surfaces.views.records import describe_state
from fidelio.surfaces.web.workflows import find_activity

# The deepest level of the tree.
DEEPEST = 4
_WORKER = re.compile(r"(s_[0-9a-z]{12})-(?:\d+-)?(.+)", re.ASCII)
_STOPPABLE = {
    "workflow": frozenset({"active", "blocked"}),
    "agent": ACTIVE_STATES,
    "runtime": frozenset({"running", "rescheduling"}),
}


class SessionView(msgspec.Struct, frozen=True):
    """A session in a list."""

    session: Session

    @property
    def title(self) -> str:
        record = self.session.record
        name = self.session.name or ""
        # The name of an agent that the conductor has started begins with the id of the run.
        worker = _WORKER.fullmatch(name)
        words = (
            worker[2] if worker else name,
            record.get("title"),
            record.get("workflow"),
            record.get("agent"),
            record.get("blueprint"),
        )
        return str(next((word for word in words if word), self.session.id))

    @property
    def above(self) -> str:
        """The id of the session that has started it, or of the run that it works for; empty if there is none."""
        worker = _WORKER.fullmatch(self.session.name or "") if self.session.kind == "agent" else None
        return self.session.parent or (worker[1] if worker else "")

    @property
    def about(self) -> str:
        """What it works on: the workflow with its position, or the agent with its project."""
        record = self.session.record
        if self.session.kind == "workflow":
            workflow = record.get("workflow", "")
            return " · ".join(filter(None, ("" if workflow == self.title else workflow, find_activity(record))))
        return " · ".join(filter(None, (record.get("agent") or record.get("blueprint") or "", record.get("project", ""))))

    @property
    def can_stop(self) -> bool:
        """Whether it does something that a person can stop. A run of a workflow can also be ended while it waits."""
        return self.session.status in _STOPPABLE[self.session.kind]

    @property
    def can_delete(self) -> bool:
        return self.session.status in DELETABLE[self.session.kind]

    @property
    def message_act(self) -> str:
        """What a message of a person does: `send`, `resume` where a run has ended, empty where nobody would read it."""
        record = self.session.record
        if self.session.kind == "runtime":
            can_go_on = self.session.status != "terminated" and not record.get("is_archived") and record.get("agent_version")
            return "send" if can_go_on else ""
        if self.session.kind != "agent" or self.session.name is None or not self.session.has_record:
            return ""
        return "send" if self.can_stop else "resume"

    @property
    def has_changes(self) -> bool:
        """Whether the agent works in a checkout or a copy of its own."""
        return bool(self.session.record.get("worktree")) or self.session.record.get("mount_mode") == "copy"

    @property
    def status(self) -> str:
        """The status in a word. An idle agent of the runtime that needs an answer waits for a person."""
        record, status = self.session.record, self.session.status
        if self.session.kind != "runtime" or status != "idle" or record.get("is_archived"):
            return status
        return "waiting" if (record.get("wakes") or {}).get("stop_reason") == "requires_action" else status

    @property
    def state(self) -> str:
        """The state for the colour: working, waiting, ended, failed or idle."""
        return describe_state(self.status)


def arrange_tree(sessions: Sequence[Session]) -> list[tuple[SessionView, int]]:
    """The sessions of a page with their depth: children below the session that started them, if it is on the same page."""
    views = [SessionView(session) for session in sessions]
    known = {session.id for session in sessions}
    below = defaultdict[str, list[SessionView]](list)
    for view in views:
        below[view.above if view.above in known and view.above != view.session.id else ""].append(view)
    rows = list[tuple[SessionView, int]]()
    waiting = [(view, 0) for view in reversed(below[""])]
    while waiting:
        view, depth = waiting.pop()
        rows.append((view, min(depth, DEEPEST)))
        waiting += [(child, depth + 1) for child in reversed(below.pop(view.session.id, []))]
    return rows
