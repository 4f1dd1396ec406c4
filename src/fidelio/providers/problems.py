"""Classify what went wrong with a request to a model API: its kind, whether it may be repeated, and what a person can do.

The status decides. An error inside a stream has none; the adapter translates its type into the status that belongs to it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from fidelio.providers.model import ModelProblem, ProblemKind

EXCERPT = 300
_RETRIED = frozenset({408, 409, 425, 429})
_LONGEST_WAIT = 3600.0
_TOO_LONG = re.compile(
    r"context.{0,10}(?:length|window|size|limit)|maximum context|prompt is too long|too many (?:input )?tokens",
    re.IGNORECASE,
)
_NO_CREDIT = re.compile(r"insufficient_quota|credit balance is too low|billing", re.IGNORECASE)
_CONTROL = re.compile(r"[^\x20-\x7e\xa0-\U0010ffff]+")


class Vendor(msgspec.Struct, frozen=True):
    """How errors name an API, and the variables with its key and its address. `secrets` never appear in an error."""

    name: str
    key_variable: str
    address_variable: str
    secrets: tuple[str, ...] = ()

    def excerpt(self, text: str) -> str:
        """A short, printable part of a vendor's text, without secrets: some servers repeat the key that they refuse."""
        for secret in self.secrets:
            text = text.replace(secret, "…")
        text = " ".join(_CONTROL.sub(" ", text).split())
        return text if len(text) <= EXCERPT else f"{text[: EXCERPT - 1]}…"


def classify(vendor: Vendor, status: int, message: str, *, code: str = "", retry_after: str = "") -> ModelProblem:
    """The error for a status. `code` is the vendor's name of the error, `retry_after` the header."""
    kind, retryable = _decide(status, f"{code} {message}")
    said = vendor.excerpt(message)
    return ModelProblem(
        f"{vendor.name} answered with the status {status}{f': {said}' if said else '.'}",
        remedy=_find_remedy(vendor, status, kind, retryable=retryable),
        kind=kind,
        retryable=retryable,
        retry_after=parse_retry_after(retry_after, datetime.now(UTC)) if retryable else None,
        status=status,
    )


def make_connection_problem(vendor: Vendor, what: str) -> ModelProblem:
    """The error for a request without a complete reply: no connection, a time-out, a stream that ends early or is malformed."""
    remedy = f"If it happens again, check the network and {vendor.address_variable}."
    return ModelProblem(f"{vendor.name} {what}.", remedy=remedy, retryable=True)


def parse_retry_after(value: str, now: datetime) -> float | None:
    """Seconds of a `retry-after` header, which has a number or a date; at most an hour. None if it is missing or unreadable."""
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(value).astimezone(UTC) - now).total_seconds()
        except (ValueError, OverflowError):
            return None
    # A comparison that holds for no NaN.
    return min(max(seconds, 0.0), _LONGEST_WAIT) if seconds == seconds else None  # noqa: PLR0124  # NaN differs from itself


def read_error_body(body: bytes) -> tuple[str, str]:
    """The message and the code of an error, as the vendors and their imitations send them; else the text itself."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return body.decode("utf-8", "replace"), ""
    error = value.get("error", value) if isinstance(value, Mapping) else value
    if not isinstance(error, Mapping):
        return str(error), ""
    message = error.get("message") or error.get("detail") or error.get("error") or ""
    return str(message), " ".join(str(name) for name in (error.get("type"), error.get("code")) if name)


def find_stream_status(code: Any, statuses: Mapping[str, int]) -> int:
    """The status for an error inside a stream; an unknown error counts as a failure of the server."""
    return code if isinstance(code, int) and 400 <= code < 600 else statuses.get(str(code), 500)


def _decide(status: int, text: str) -> tuple[ProblemKind, bool]:
    is_refusal = 400 <= status < 500
    if status == 402 or (is_refusal and _NO_CREDIT.search(text)):
        return "billing_error", False
    if status == 429:
        return "model_rate_limited_error", True
    if is_refusal and status in (400, 413, 422) and _TOO_LONG.search(text):
        return "context_too_long_error", False
    if status == 529:
        return "model_overloaded_error", True
    return "model_request_failed_error", status in _RETRIED or status >= 500


def _find_remedy(vendor: Vendor, status: int, kind: ProblemKind, *, retryable: bool) -> str:
    if kind == "billing_error":
        return "Check the credit and the limits of the account at the vendor."
    if kind == "context_too_long_error":
        return "Use a model with a larger window, or start a new session with less history."
    if retryable:
        return "The request can be repeated."
    if status < 400:
        return f"A redirect is not followed with a key. Set {vendor.address_variable} to the final address."
    remedies = {
        401: f"Check {vendor.key_variable}.",
        403: f"Check whether the key in {vendor.key_variable} may use this model.",
        404: f"Check the name of the model, and {vendor.address_variable} if it is set.",
        413: "Send less: smaller images and files, or a new session.",
    }
    return remedies.get(status, "The vendor refuses this request whenever it is sent. Change the model or the request.")
