"""The shell of runtime sessions: 15 tools for it and `bash`. Directory, variables and history are durable; a live shell is not.

live      what the sandbox says          durable_shell (above)  what the record says
settle    compares the two               history                commands in the ledger
variables names and encrypted values     plans, views           what the caller is told
commands, control, reading               the tools
"""

from __future__ import annotations

from fidelio.runtime.shell.commands import COMMAND_IMPLEMENTATIONS
from fidelio.runtime.shell.control import CONTROL_IMPLEMENTATIONS
from fidelio.runtime.shell.plans import describe_posture, read_first_alternatives
from fidelio.runtime.shell.reading import READING_IMPLEMENTATIONS
from fidelio.runtime.tools.model import Implementation

__all__ = ["IMPLEMENTATIONS", "describe_posture", "read_first_alternatives"]

IMPLEMENTATIONS: dict[str, Implementation] = {
    **READING_IMPLEMENTATIONS,
    **CONTROL_IMPLEMENTATIONS,
    **COMMAND_IMPLEMENTATIONS,
}
