"""The compatibility table of the documentation: every method of the SDK for hosted agents, and what differs here.

It is rendered from the methods that the installed SDK has and from what the tests demand of them, not from a run:
`test_objects.py` calls every method against a server, and fails if the table says anything else.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import NamedTuple

from anthropic import AsyncAnthropic

from tests.surfaces.v1.live.walk import list_methods

GROUPS = ("agents", "environments", "sessions", "vaults", "memory_stores", "files", "skills", "deployments", "deployment_runs")
# Resources of the SDK without any method that is offered, each with a path that tells.
NOT_OFFERED = {
    "dreams": "/v1/dreams",
    "messages": "/v1/messages",
    "models": "/v1/models",
    "organization": "/v1/organizations/me",
    "tunnels": "/v1/tunnels",
    "user_profiles": "/v1/user_profiles",
}
WALK = "live/test_objects.py::test_every_method_answers_with_objects_of_the_sdk"
_HELPERS = "live/test_objects.py::test_the_helpers_of_the_sdk_run_tools"


class Difference(NamedTuple):
    """What differs from the documentation of the SDK, and the test that shows it. `refused`: the method is always refused."""

    text: str
    test: str
    refused: bool = False


DIFFERENCES = {
    "agents.create": Difference(
        "`fidelio_toolset`; any model of this server; what could not be kept is refused by name",
        "test_agents_refused.py::test_what_cannot_be_kept_is_refused_by_name",
    ),
    "agents.list": Difference(
        "also agents of files and commands", "test_agents.py::test_agents_of_files_and_commands_are_listed_and_belong_to_them"
    ),
    "agents.update": Difference(
        "those of files are changed in their files",
        "test_agents.py::test_agents_of_files_and_commands_are_listed_and_belong_to_them",
    ),
    "environments.create": Difference(
        "packages of `apt` have to be on the machine",
        "test_environments.py::test_packages_of_the_system_have_to_be_on_the_machine",
    ),
    "environments.list": Difference(
        "also environments of files and commands",
        "test_environments.py::test_environments_are_listed_newest_first_and_then_the_named_ones",
    ),
    "environments.delete": Difference(
        "refused while a session uses it", "test_environments.py::test_an_environment_in_use_is_not_deleted"
    ),
    "environments.work.poll": Difference(
        "an item is a call of a tool, and only what a worker can do becomes one",
        "test_work.py::test_only_what_a_worker_can_do_becomes_work",
    ),
    "sessions.create": Difference(
        "no `github_repository`; a `budget` needs a model with a known price",
        "test_session_resources.py::test_what_is_not_offered_is_refused_with_what_to_do_instead",
    ),
    "sessions.update": Difference(
        "a budget can be raised or removed, not added",
        "test_sessions.py::test_a_budget_is_set_at_creation_and_can_be_raised_or_removed",
    ),
    "sessions.archive": Difference(
        "a running session is refused", "test_sessions.py::test_a_running_session_is_neither_archived_nor_deleted"
    ),
    "sessions.delete": Difference(
        "a running session is refused", "test_sessions.py::test_a_running_session_is_neither_archived_nor_deleted"
    ),
    "sessions.events.list": Difference(
        "also `after=EVENT_ID`, and events of Fidelio with `include=fidelio`",
        "test_events.py::test_events_of_ours_are_sent_only_on_request",
    ),
    "sessions.events.stream": Difference(
        "resumes behind `Last-Event-ID`, also after a restart; no previews of `agent.thinking`",
        "live/test_streams.py::test_a_stream_goes_on_after_the_server_was_killed",
    ),
    "sessions.resources.add": Difference(
        "files only; below `/mnt/session/uploads` or in `/workspace`",
        "test_session_resources.py::test_what_is_not_offered_is_refused_with_what_to_do_instead",
    ),
    "sessions.resources.update": Difference(
        "no resource has a token",
        "test_session_resources.py::test_what_is_not_offered_is_refused_with_what_to_do_instead",
        refused=True,
    ),
    "sessions.threads.archive": Difference(
        "the primary thread cannot be archived",
        "test_threads.py::test_the_primary_thread_cannot_be_archived_and_a_foreign_thread_is_unknown",
    ),
    "vaults.credentials.create": Difference(
        "no `environment_variable`", "test_vaults.py::test_a_variable_of_the_sandbox_is_refused_with_the_reason"
    ),
    "memory_stores.memory_versions.redact": Difference(
        "erases the bytes from the files of the ledger",
        "test_memory_stores_versions.py::test_a_redacted_version_keeps_who_and_when_and_loses_its_bytes",
    ),
    "skills.list": Difference("no skills of the vendor", "test_agents_refused.py::test_what_cannot_be_kept_is_refused_by_name"),
    "files.download": Difference("every file can be downloaded", "test_files.py::test_a_file_comes_back_byte_for_byte"),
    "deployments.run": Difference(
        "takes an `Idempotency-Key`", "test_deployments.py::test_a_repeated_run_with_the_same_key_begins_one_session"
    ),
}
# Methods of the SDK without a request of their own, each with the test that uses it.
HELPERS = {
    "environments.work.poller": "test_work.py::test_the_worker_of_the_sdk_carries_out_the_tools",
    "environments.work.worker": "test_work.py::test_the_worker_of_the_sdk_carries_out_the_tools",
    "sessions.events.tool_runner": _HELPERS,
}


def list_known_methods() -> list[str]:
    """The methods of the installed SDK, in the order of the page."""
    return list(list_methods(AsyncAnthropic(api_key="none"), GROUPS))


def render_compatibility() -> str:
    """The page `docs/reference/api-compatibility.md`."""
    methods = list_known_methods()
    refused = sum(difference.refused for difference in DIFFERENCES.values())
    lines = [
        "# Compatibility of the HTTP API",
        "",
        f"What [the API](api.md) makes of the {len(methods)} methods for hosted agents in `client.beta` of the official Python",
        f"SDK {version('anthropic')}. {len(methods) - refused} are offered, {refused} is always refused with 400.",
        "",
        "A test calls each of them against a server in a process of its own, and compares every field of every answer with",
        f"the types of the SDK: `{WALK}`.",
        "What differs is shown by the test that its row names. Tests are below `tests/surfaces/v1`.",
    ]
    for group in dict.fromkeys(method.rpartition(".")[0] for method in methods):
        lines += ["", f"## {group}", "", "| method | here | what differs | shown by |", "|---|---|---|---|"]
        lines += [_render_row(method) for method in methods if method.rpartition(".")[0] == group]
    rows = [f"| `{name}` | not offered (404) |" for name in NOT_OFFERED]
    lines += ["", "## Everything else", "", "| resource | here |", "|---|---|", *rows, ""]
    lines += ["Shown by `live/test_objects.py::test_what_is_not_offered_is_not_found`.", ""]
    return "\n".join(lines)


def _render_row(method: str) -> str:
    difference = DIFFERENCES.get(method)
    here = "refused (400)" if difference is not None and difference.refused else "offered"
    test = HELPERS.get(method) or (difference.test if difference is not None else "")
    text = difference.text if difference is not None else "a helper of the SDK over the other methods" if test else ""
    return f"| `{method.rpartition('.')[2]}` | {here} | {text} | {f'`{test}`' if test else ''} |"
