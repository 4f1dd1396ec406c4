"""Tells whether this process may answer for a person: not from below an agent that Fidelio started."""

from __future__ import annotations

import getpass
import os

from fidelio.errors import UsageProblem
from fidelio.processes.table import agent_above


def this_person() -> str:
    """The name of the user at this terminal; refuses to speak for a person from below an agent that Fidelio started."""
    if agent_above():
        raise UsageProblem(
            "This process runs below an agent, and an agent does not answer for a person.",
            remedy="Answer from a terminal of your own.",
        )
    return f"person:{_user()}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A container may run as a user whom the system does not know by name; older Pythons raise the first, newer the second.
        return f"uid-{os.getuid()}"
