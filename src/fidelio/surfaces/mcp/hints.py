"""What a server tells a person to type, for the home that the server works in.

Whoever words a reply names the command alone and need not know which server it is: that is known of every call.
"""

from __future__ import annotations

from contextvars import ContextVar

from fidelio.surfaces.commands import PROGRAM, as_typed

_program: ContextVar[str] = ContextVar("program_of_this_server", default=PROGRAM)


def speak_of(program: str) -> None:
    """For the rest of the task that carries out a call: every call has one of its own."""
    _program.set(program)


def typed_here(words: object) -> str:
    """A sentence or an error of ours, with its commands as they are typed."""
    return as_typed(str(words), _program.get())
