"""Parameters of the tools for outcomes."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from fidelio.runtime.tools.parameters import SessionParameters


class SuccessCriterion(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A criterion, and a check that the runtime carries out itself.

    The check has a `type`: command {command, expectExit, timeoutMs}, file_exists {path}, file_matches {path, pattern, min,
    max}, json_schema {path, schema}, diff_paths {paths}, workflow_activity {workflow, session, activity}.
    """

    text: Annotated[str, Meta(min_length=1, max_length=4_000)]
    check: dict[str, Any] | None = None


class OutcomeDefine(SessionParameters, frozen=True, kw_only=True):
    """What must become true."""

    title: Annotated[str, Meta(min_length=1, max_length=200)]
    detail: Annotated[str, Meta(max_length=4_000)] | None = None
    successCriteria: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=4_000)] | SuccessCriterion, ...], Meta(max_length=20)
    ] = ()
    maxIterations: Annotated[int, Meta(ge=1, le=20)] | None = None


class OutcomeHistory(SessionParameters, frozen=True, kw_only=True):
    """How many evaluations to list."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 12
