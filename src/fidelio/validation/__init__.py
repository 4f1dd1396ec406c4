"""JSON Schemas and regular expressions of others, checked under limits of time and memory."""

from __future__ import annotations

from fidelio.validation.checks import first_match, patterns_problem, schema_problem, violations
from fidelio.validation.child import Schema
from fidelio.validation.pool import LimitExceeded, Undecided

__all__ = ["LimitExceeded", "Schema", "Undecided", "first_match", "patterns_problem", "schema_problem", "violations"]
