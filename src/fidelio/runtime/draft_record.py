"""The drafts in the record of a session: shared files that were copied into its workspace to be edited. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from fidelio.ledger.unit_of_work import RecordEvent
from fidelio.runtime import events as e

# Drafts that are kept in the record; an older one is only a file of the workspace then.
MAX_DRAFTS = 100


class StagedDraft(msgspec.Struct, frozen=True):
    """A file of the substrate that was copied into the workspace."""

    source_path: str
    source_digest: str
    target_digest: str
    staged_at: int


Drafts: TypeAlias = dict[str, StagedDraft]


def _add_draft(drafts: Drafts, event: RecordEvent) -> Drafts:
    body = event.body
    draft = StagedDraft(body["source_path"], body["source_digest"], body["target_digest"], event.time)
    # By time: the stored record does not keep the order of its keys.
    others = sorted(drafts.items(), key=lambda item: (item[1].staged_at, item[0]))
    newest = [(path, other) for path, other in others if path != body["target_path"]][1 - MAX_DRAFTS :]
    return {**dict(newest), body["target_path"]: draft}


def _promote(drafts: Drafts, event: RecordEvent) -> Drafts:
    """A promoted draft is based on what it has become. The names are those of the promotion: its source is the draft."""
    body = event.body
    draft = drafts.get(body.get("source_path", ""))
    if draft is None or draft.source_path != body.get("target_path"):
        return drafts
    digest = body["content_digest"]
    return {**drafts, body["source_path"]: replace(draft, source_digest=digest, target_digest=digest)}


DRAFT_FOLDS: Mapping[str, Callable[[Drafts, RecordEvent], Drafts]] = {
    e.STAGED: _add_draft,
    e.PROMOTED: _promote,
}
