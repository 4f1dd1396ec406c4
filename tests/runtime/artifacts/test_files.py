"""The files that describe a session: which there are, what they say, when they are written, and what they never hold."""

from __future__ import annotations

import shutil
from typing import Any

import msgspec
import pytest

from fidelio.runtime.environments.versions import Environment, define
from fidelio.runtime.tools.definitions import RUNTIME_TOOLS
from fidelio.runtime.vaults import Vaults
from fidelio.sandbox.model import RUNTIME, RUNTIME_LINK
from tests.runtime.artifacts.support import FileBench
from tests.runtime.navigation.support import World, message, reply, wake
from tests.runtime.navigation.test_listing import evaluated, outcome
from tests.support import proves

WITH_MARKDOWN = {
    *("session-runtime", "permissions", "permission-posture", "agent-setup", "context-budget", "outcome-grade"),
    *("outcome-evaluation", "outcome-evaluations", "event-feed", "shell-history", "shell-last-output"),
}
ONLY_JSON = {
    *("managed-tools", "environment", "skills", "vaults", "session-status", "outcome", "wake-traces", "session-relations"),
    *("shell-state", "staged-substrate"),
}
NAMES = {f"{name}.{kind}" for name in WITH_MARKDOWN for kind in ("json", "md")} | {f"{name}.json" for name in ONLY_JSON}


async def start_working(bench: FileBench, **body: Any) -> str:
    """A session in its second wake, with an outcome."""
    session = await bench.start(agent_version=1, **body)
    setup = await bench.describe(session)
    first = wake("wake_1", reply("wake_1", "half"), summary="Half done.", setup=setup.fingerprint, messages=1)
    await bench.append(session, message("Do it"), outcome("Ship it"), *first, evaluated("Ship it", "fail", "first_iteration"))
    await bench.begin_wake(session)
    return session


@proves("artifacts.files")
async def test_a_session_has_exactly_the_documented_files(bench: FileBench) -> None:
    session = await start_working(bench)

    found = {path.name for path in (await bench.files(session)).iterdir()}

    assert found == NAMES | {"outcome-repair.md"}


@proves("artifacts.files")
async def test_the_files_say_what_the_tools_say(bench: FileBench) -> None:
    session = await start_working(bench)
    await bench.end_wake(session)

    evaluation = await bench.use(session, "outcome_grade")
    setup = await bench.use(session, "agent_describe_setup")
    context = await bench.use(session, "session_describe_context")

    assert (await bench.read(session, "outcome-grade.json"))["grade"] == evaluation["grade"]
    assert (await bench.read(session, "agent-setup.json"))["sections"] == setup["agentSetup"]["sections"]
    assert (await bench.read(session, "context-budget.json"))["contextBudget"] == context["contextBudget"]
    assert (await bench.read(session, "skills.json"))["skills"][0].keys() == {"name", "description", "source"}
    assert (await bench.read(session, "outcome-evaluations.json"))["count"] == 1
    status = await bench.read(session, "session-status.json")
    assert (status["status"], status["latestSummary"], status["turns"]) == ("idle", "Half done.", 1)


@proves("artifacts.files")
async def test_newest_events_wakes_and_relatives_are_written_at_the_end_of_a_wake(bench: FileBench) -> None:
    session = await start_working(bench)
    await bench.append(session, *wake("wake_2", *(reply("wake_2", f"text {each}") for each in range(80)), summary="Whole."))
    await bench.append(session, message("one more"))
    await bench.end_wake(session)

    feed = await bench.read(session, "event-feed.json")
    traces = (await bench.read(session, "wake-traces.json"))["traces"]

    assert (feed["count"], feed["pendingEventCount"]) == (32, 1)
    assert feed["events"][-1]["isPending"] is True
    assert feed["events"][-1]["preview"] == "one more"
    # A wake that is longer than the newest events is counted as a whole.
    assert (traces[0]["wakeId"], traces[0]["eventCount"], traces[0]["latestSummary"]) == ("wake_2", 84, "Whole.")


@proves("artifacts.files")
async def test_relatives_are_named_with_their_state(bench: FileBench) -> None:
    session = await start_working(bench)
    world = World(bench.context)
    child = await world.start(outcome("Part of it"), parent=session)
    deleted = await world.start(parent=session)
    await bench.ledger.erase([deleted], actor="anna", reason="not needed")
    await bench.end_wake(session)

    relations = await bench.read(session, "session-relations.json")

    (found,) = relations["children"]
    assert (found["sessionId"], found["outcomeTitle"], found["outcomeStatus"]) == (child, "Part of it", "not_ready")
    assert relations["parent"] is None


@proves("artifacts.changed")
async def test_only_files_whose_content_differs_are_written(bench: FileBench) -> None:
    session = await start_working(bench)
    await bench.end_wake(session)
    before = await bench.times(session)
    await bench.end_wake(session)
    await bench.begin_wake(session)

    assert await bench.times(session) == before

    await bench.append(session, message("more"))
    await bench.end_wake(session)
    after = await bench.times(session)

    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"session-status.json", "session-runtime.json", "session-runtime.md", "event-feed.json", "event-feed.md"}


@proves("artifacts.changed")
async def test_a_call_that_changes_nothing_writes_nothing(bench: FileBench) -> None:
    session = await start_working(bench)
    before = await bench.times(session)

    await bench.use(session, "permissions_describe")
    await bench.use(session, "session_list")

    assert await bench.times(session) == before


@proves("artifacts.changed")
async def test_an_outcome_that_is_defined_in_a_wake_is_in_its_files_at_once(bench: FileBench) -> None:
    session = await start_working(bench)

    await bench.use(session, "outcome_define", title="Also this", successCriteria=["it is documented"])

    assert (await bench.read(session, "outcome.json"))["activeOutcome"]["title"] == "Also this"


@proves("artifacts.trust")
async def test_a_file_that_was_changed_by_hand_is_written_again_and_never_believed(bench: FileBench) -> None:
    session = await start_working(bench)
    files = await bench.files(session)
    forged = msgspec.json.encode({"sections": {}, "fingerprint": "forged"})
    for name in ("agent-setup.json", "context-budget.json", "outcome-evaluation.json", "session-status.json"):
        files.joinpath(name).write_bytes(forged)

    setup = await bench.use(session, "agent_describe_setup")
    snapshot = await bench.use(session, "session_get_snapshot")
    await bench.begin_wake(session)

    assert setup["agentSetup"]["fingerprint"] == snapshot["setupFingerprint"] != "forged"
    assert not [path.name for path in files.iterdir() if b"forged" in path.read_bytes()]


@proves("artifacts.trust")
async def test_a_planted_link_is_not_followed(bench: FileBench) -> None:
    session = await start_working(bench)
    files = await bench.files(session)
    outside = bench.home.path / "outside.json"
    outside.write_text("untouched")
    files.joinpath("session-status.json").unlink()
    files.joinpath("session-status.json").symlink_to(outside)

    await bench.end_wake(session)

    assert outside.read_text() == "untouched"
    assert (await bench.read(session, "session-status.json"))["sessionId"] == session


@proves("artifacts.secrets")
async def test_no_file_holds_a_secret_or_a_directory_of_the_host(bench: FileBench) -> None:
    await Vaults(bench.context).add("github", "v4ult-secret", by="anna")
    content = Environment(network="limited", hosts=("pypi.org",), variables={"TOKEN": "env-secret"}, read_only=("/opt",))
    version = await define(bench.context, "online", content, by="anna")
    mount = {"mount_mode": "ro", "mount_source": str(bench.home.path)}
    session = await start_working(bench, environment="online", environment_version=version.version, vaults=["github"], **mount)
    await bench.use(session, "shell_set_env", key="MINE", value="shell-secret")
    await bench.end_wake(session)

    for path in (await bench.files(session)).iterdir():
        text = path.read_text()
        for hidden in ("v4ult-secret", "env-secret", "shell-secret", str(bench.home.path), bench.project):
            assert hidden not in text, path.name
    assert (await bench.read(session, "session-status.json"))["shell"]["variables"] == ["MINE"]


@proves("artifacts.files")
async def test_a_session_without_a_directory_has_no_files_and_still_works(bench: FileBench) -> None:
    session = await start_working(bench)
    shutil.rmtree(await bench.directory(session))

    await bench.end_wake(session)

    assert not (await bench.directory(session)).exists()


REQUIRED: dict[str, dict[str, Any]] = {
    "permissions_check": {"toolName": "shell_run", "toolArgs": {"command": "ls"}},
    "shell_read_command": {"commandId": "cmd_0000000000000000"},
}
NAMING = {
    *("permissions_check", "permissions_describe", "shell_describe", "shell_history", "shell_read_last_output"),
    *("shell_read_command", "session_get_snapshot", "session_describe_context", "environment_describe"),
    *("agent_describe_setup", "agent_compare_setup", "shell_wait"),
}


def find_paths(value: Any) -> set[str]:
    """Every text in a result that is a path of the files."""
    if isinstance(value, dict):
        return {path for inner in value.values() for path in find_paths(inner)}
    if isinstance(value, list | tuple):
        return {path for inner in value for path in find_paths(inner)}
    return {value} if isinstance(value, str) and value.startswith(f"{RUNTIME_LINK}/") else set()


@proves("artifacts.paths")
@pytest.mark.parametrize("has_wake", [True, False], ids=["in a wake", "for a client"])
@pytest.mark.parametrize("tool", sorted(NAMING))
async def test_every_path_that_a_tool_names_can_be_read(bench: FileBench, tool: str, has_wake: bool) -> None:
    session = await start_working(bench) if has_wake else await bench.start()

    output = await bench.use(session, tool, **REQUIRED.get(tool, {}))

    paths = find_paths(output)
    assert paths or not has_wake
    for path in paths:
        for name in (path, path.replace(RUNTIME_LINK, RUNTIME)):
            read = await bench.use(session, "read", path=name)
            assert read["output"]["content"], path


@proves("artifacts.paths")
def test_the_tools_that_name_files_are_all_followed() -> None:
    naming = {tool.name for tool in RUNTIME_TOOLS if any("rtifactPath" in name for name in tool.output)}

    assert naming <= NAMING
