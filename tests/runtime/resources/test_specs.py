"""The specification of a sandbox: its mounts, and what tools say about them."""

from __future__ import annotations

import msgspec

from fidelio.errors import ChainBroken
from fidelio.ledger.audit import verify_all
from fidelio.runtime.environments.versions import Environment, define
from fidelio.runtime.vaults import Vaults
from fidelio.sandbox.model import SandboxLimits
from tests.runtime.resources.support import Bench
from tests.support import proves


@proves("runtime.mounts")
async def test_a_session_has_the_documented_mounts(bench: Bench) -> None:
    session = await bench.start()
    spec = await bench.spec(session)
    assert {mount.path: (mount.access, mount.kind) for mount in spec.mounts} == {
        "/workspace": ("read_write", "session_workspace"),
        "/workspace/agent": ("read_only", "agent_workspace_substrate"),
        "/runtime": ("read_only", "session_runtime_memory"),
        "/workspace/.openboa-runtime": ("read_only", "session_runtime_memory"),
        "/memory/learnings": ("read_only", "learnings_memory_store"),
    }
    by_path = {mount.path: mount.source for mount in spec.mounts}
    assert by_path["/runtime"] == by_path["/workspace/.openboa-runtime"]
    assert (spec.session, spec.network, spec.limits, spec.environment) == (session, "none", SandboxLimits(), {})
    home = str(bench.home.path / "sandboxes")
    assert all(mount.source.startswith(home) for mount in spec.mounts)
    assert bench.project not in str(msgspec.to_builtins(spec))


@proves("runtime.mounts")
async def test_the_list_of_resources_names_no_directory_of_the_host(bench: Bench) -> None:
    vaults = Vaults(bench.context)
    await vaults.add("github", "token", by="anna")
    session = await bench.start(vaults=["github"])
    output = await bench.call(session, "resources_list")
    assert output["sessionId"] == session
    assert {"kind": "vault", "mountPath": "/vaults/github", "access": "read_only", "vaultName": "github"} in output["resources"]
    assert {each["mountPath"] for each in output["resources"]} >= {"/workspace", "/workspace/agent", "/runtime"}
    assert str(bench.home.path) not in str(output)


@proves("runtime.mounts")
async def test_sessions_of_one_agent_share_a_directory_and_others_do_not(bench: Bench) -> None:
    one, two = await bench.start("one"), await bench.start("two")
    other = await bench.start("other", agent="reviewer")
    sources = [
        next(mount.source for mount in (await bench.spec(each)).mounts if mount.path == "/workspace/agent")
        for each in (one, two, other)
    ]
    assert sources[0] == sources[1] != sources[2]


@proves("runtime.shared-files", "runtime.vault-erasure")
async def test_everything_that_stores_hold_is_verified(bench: Bench) -> None:
    session, vaults = await bench.start(), Vaults(bench.context)
    (await bench.workspace(session) / "a.md").write_text("one\n")
    await bench.call(session, "resources_promote_to_substrate", sourcePath="a.md")
    await vaults.add("github", "one", by="anna")
    await vaults.add("github", "two", by="anna", replaces=True)
    await vaults.attach(session, "github", by="anna")
    await vaults.remove("github", by="anna")
    await define(bench.context, "web", Environment(network="unrestricted"), by="anna")
    await bench.spec(session)

    verdicts = [verdict async for verdict in verify_all(bench.ledger)]

    assert len(verdicts) == 4
    assert [verdict for verdict in verdicts if isinstance(verdict, ChainBroken) or not verdict.holds] == []
