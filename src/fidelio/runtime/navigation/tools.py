"""How the navigation tools are carried out."""

from __future__ import annotations

from collections.abc import Mapping

from fidelio.runtime.navigation.context import describe_context
from fidelio.runtime.navigation.describing import compare_setup, describe_environment, describe_setup_of
from fidelio.runtime.navigation.listing import list_children, list_sessions
from fidelio.runtime.navigation.reading import get_events, get_trace, list_traces
from fidelio.runtime.navigation.snapshot import get_snapshot
from fidelio.runtime.tools.model import Implementation

IMPLEMENTATIONS: Mapping[str, Implementation] = {
    "environment_describe": Implementation(describe_environment),
    "agent_describe_setup": Implementation(describe_setup_of),
    "agent_compare_setup": Implementation(compare_setup),
    "session_list": Implementation(list_sessions),
    "session_list_children": Implementation(list_children),
    "session_get_snapshot": Implementation(get_snapshot),
    "session_describe_context": Implementation(describe_context),
    "session_get_events": Implementation(get_events),
    "session_get_trace": Implementation(get_trace),
    "session_list_traces": Implementation(list_traces),
}
