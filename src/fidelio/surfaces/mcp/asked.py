"""Which questions the call that is being carried out has put to a person.

A handler that asks is called again when the person has spoken, and then goes on with what they said, whatever the model had
passed on. That is true of this one call: whoever calls once more gives an answer like everybody else.
"""

from __future__ import annotations

from collections.abc import Collection
from contextvars import ContextVar

_asked: ContextVar[set[str] | None] = ContextVar("asked_in_this_call", default=None)


def nobody_asked_yet() -> None:
    """At the beginning of a call. It is carried out in a task of its own, with which this ends."""
    _asked.set(set())


def asked_person() -> Collection[str]:
    """The requests that this call has put to a person."""
    return _asked.get() or ()


def put_to_person(request: str) -> None:
    asked = _asked.get()
    if asked is not None and request:
        asked.add(request)
