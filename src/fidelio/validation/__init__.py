"""Validation with untrusted JSON Schemas and regular expressions, under limits of time and memory."""

from __future__ import annotations

from fidelio.validation.checks import find_first_match, find_pattern_problem, find_schema_problem, find_violations
from fidelio.validation.child import Schema
from fidelio.validation.pool import CheckUndecided, LimitExceeded

__all__ = [
    "CheckUndecided",
    "LimitExceeded",
    "Schema",
    "find_first_match",
    "find_pattern_problem",
    "find_schema_problem",
    "find_violations",
]
