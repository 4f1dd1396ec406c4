"""Credentials of vaults reach the MCP servers of sessions that are attached to them, and nothing else."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fidelio.errors import RecordMismatch
from fidelio.runtime import events as e
from fidelio.runtime.credentials.exchange import open_token
from fidelio.runtime.credentials.model import Credential, RefreshSettings, Secrets, VaultContent
from fidelio.runtime.credentials.service import ProjectVaults
from fidelio.runtime.record import RuntimeRecords
from fidelio.runtime.servers.credentials import MASK
from fidelio.runtime.vaults import Vaults
from fidelio.tokens.keyring import FileKeys
from tests.runtime.credentials.servers import OAuthServer, serve_oauth
from tests.runtime.servers.test_secrets import find_leaks
from tests.runtime.servers.test_servers import result_text, talk
from tests.runtime.wakes.support import PROJECT, Runtime, open_runtime, say, use
from tests.support import proves

TOKEN, REFRESH = "tok-VERYPRIVATE-1", "ref-VERYPRIVATE-2"


def draft(server: OAuthServer, **more: Any) -> Credential:
    settings = RefreshSettings("fidelio", f"{server.base}/token", "client_secret_post")
    values: dict[str, Any] = {"type": "mcp_oauth", "mcp_server_url": f"{server.base}/mcp", "refresh": settings, **more}
    return Credential(id="", created_at=1, updated_at=1, **values)


class Desk:
    """A runtime with vaults and an agent that has the server."""

    def __init__(self, runtime: Runtime, server: OAuthServer) -> None:
        self.runtime, self.server = runtime, server
        runtime.ledger.record_type = lambda kind: RuntimeRecords() if kind == "runtime" else None
        self.vaults = ProjectVaults(runtime.context, PROJECT)

    async def add_vault(self, token: str = TOKEN, **more: Any) -> str:
        vault = (await self.vaults.objects.create(VaultContent("Alice"), by="api")).id
        await self.vaults.add(vault, draft(self.server, **more), Secrets(token, REFRESH, "client"), by="api")
        return vault

    async def begin(self, *vaults: str, path: str = "/mcp", **headers: str) -> str:
        far = {"url": f"{self.server.base}{path}", "headers": headers, "policies": {"echo": "always_allow"}}
        await self.runtime.define(tools={"mcp_servers": {"far": far}})
        return await self.runtime.start(vault_ids=vaults)

    async def call(self, session: str) -> None:
        await talk(self.runtime, session, use(("mcp__far__echo", {"text": "x"})), say("Done."))

    async def find(self, vault: str) -> Credential:
        (found,) = await self.vaults.list(vault)
        return found


@proves("credentials.servers")
async def test_the_credential_for_the_address_is_sent_and_masked_in_what_comes_back(tmp_path: Path) -> None:
    async with serve_oauth() as server, open_runtime(tmp_path) as runtime:
        desk = Desk(runtime, server)
        server.accepted.add(TOKEN)
        session = await desk.begin(await desk.add_vault())
        await desk.call(session)

        assert result_text(runtime.requests[1]) == f'{{"ok":true,"content":"your token is {MASK}"}}'
        assert await find_leaks(runtime, session, TOKEN) == []
        assert await find_leaks(runtime, session, REFRESH) == []
        assert server.forms == []


@proves("credentials.servers")
async def test_the_first_vault_with_the_address_wins_and_archived_and_deleted_ones_are_passed_over(tmp_path: Path) -> None:
    async with serve_oauth() as server, open_runtime(tmp_path) as runtime:
        desk = Desk(runtime, server)
        server.accepted |= {"tok-two-PRIVATE", "tok-three-PRIVATE"}
        archived, deleted = await desk.add_vault("tok-archived"), await desk.add_vault("tok-deleted")
        other = await desk.add_vault("tok-other", mcp_server_url=f"{server.base}/mcp/")
        two, three = await desk.add_vault("tok-two-PRIVATE"), await desk.add_vault("tok-three-PRIVATE")
        session = await desk.begin(archived, deleted, other, two, three)
        await desk.vaults.archive(archived, by="api")
        await desk.vaults.objects.delete(deleted, by="api")
        await desk.call(session)

        assert set(server.used) == {"tok-two-PRIVATE"}


@proves("credentials.servers")
async def test_a_session_without_the_vault_is_not_authenticated(tmp_path: Path) -> None:
    async with serve_oauth() as server, open_runtime(tmp_path) as runtime:
        desk = Desk(runtime, server)
        server.accepted.add(TOKEN)
        await desk.add_vault()
        session = await desk.begin()
        await talk(runtime, session, say("Without it."))

        (error,) = await runtime.events(session, e.SESSION_ERROR)
        assert "401" in error.body["error"]["message"]
        assert server.used == []


@proves("credentials.refresh")
async def test_an_expired_token_is_refreshed_once_and_the_new_one_is_kept(tmp_path: Path) -> None:
    async with serve_oauth() as server, open_runtime(tmp_path) as runtime:
        desk = Desk(runtime, server)
        vault = await desk.add_vault(expires_at=runtime.clock() + 1_000)
        session = await desk.begin(vault, Authorization="Bearer of-the-definition")
        await desk.call(session)
        await desk.call(session)

        ((form, _),) = server.forms
        assert form["client_id"] == "fidelio"
        assert (form["refresh_token"], form["client_secret"]) == (REFRESH, "client")
        assert set(server.used) == {"access-new-1-PRIVATE"}
        _, secrets = await desk.vaults.open_secrets(vault, (await desk.find(vault)).id)
        assert secrets == Secrets("access-new-1-PRIVATE", "refresh-new-1-PRIVATE", "client")
        assert (await desk.find(vault)).expires_at > runtime.clock() + 3_000_000
        assert await find_leaks(runtime, session, "PRIVATE") == []


@proves("credentials.refresh")
async def test_a_token_that_the_server_refuses_meanwhile_is_exchanged_once(tmp_path: Path) -> None:
    async with serve_oauth() as server, open_runtime(tmp_path) as runtime:
        desk = Desk(runtime, server)
        server.accepted.add(TOKEN)
        server.revoke_after("tools/list")
        session = await desk.begin(vault := await desk.add_vault())
        await desk.call(session)

        assert result_text(runtime.requests[1]) == f'{{"ok":true,"content":"your token is {MASK}"}}'
        assert len(server.forms) == 1
        _, secrets = await desk.vaults.open_secrets(vault, (await desk.find(vault)).id)
        assert (secrets.token, server.used[-1]) == ("access-new-1-PRIVATE", "access-new-1-PRIVATE")
        assert await find_leaks(runtime, session, "PRIVATE") == []


@proves("credentials.refresh")
async def test_a_token_that_cannot_be_refreshed_is_an_error_of_the_server_without_secrets(tmp_path: Path) -> None:
    async with serve_oauth() as server, open_runtime(tmp_path) as runtime:
        desk = Desk(runtime, server)
        server.mode = "refuses"
        session = await desk.begin(await desk.add_vault(expires_at=1))
        await talk(runtime, session, say("Without it."))

        (error,) = await runtime.events(session, e.SESSION_ERROR)
        assert "gave no new one (400)" in error.body["error"]["message"]
        assert await find_leaks(runtime, session, "PRIVATE") == []
        assert (await runtime.record(session)).status == "idle"


@proves("credentials.refresh")
async def test_two_sessions_that_refresh_at_once_both_get_a_good_token(tmp_path: Path) -> None:
    async with serve_oauth() as server, open_runtime(tmp_path) as runtime:
        desk = Desk(runtime, server)
        vault = await desk.add_vault(expires_at=1)
        credential = await desk.find(vault)
        tokens = await asyncio.gather(*(open_token(runtime.context, desk.vaults, vault, credential) for _ in range(2)))

        assert set(tokens) <= server.accepted
        _, secrets = await desk.vaults.open_secrets(vault, credential.id)
        assert secrets.token in server.accepted


@proves("credentials.sealing")
async def test_sealed_secrets_do_not_open_elsewhere_and_are_sealed_anew_after_a_rotation(tmp_path: Path) -> None:
    async with serve_oauth() as server, open_runtime(tmp_path) as runtime:
        keys = FileKeys(runtime.context.home.keys)
        context = replace(runtime.context, open_keys=lambda: keys)
        desk = Desk(runtime, server)
        desk.vaults = ProjectVaults(context, PROJECT)
        one, two = await desk.add_vault("tok-one"), await desk.add_vault("tok-two")
        moved = replace(await desk.find(one), digest=(await desk.find(two)).digest)
        with pytest.raises(RecordMismatch):
            await desk.vaults._open(one, moved)  # a thief who moves what is sealed

        before, new = (await desk.find(one)).digest, keys.rotate().kid
        assert await Vaults(context).reseal(by="keys") == 2
        assert await Vaults(context).reseal(by="keys") == 0

        after = await context.ledger.blob((await desk.find(one)).digest)
        assert after is not None
        assert after.startswith(f"e1.{new}.".encode())
        assert await context.ledger.blob(before) is None
        assert (await desk.vaults.open_secrets(one, (await desk.find(one)).id))[1].token == "tok-one"


@proves("credentials.visible")
async def test_a_session_sees_the_attached_vault_by_its_name_and_nothing_of_its_credentials(tmp_path: Path) -> None:
    async with serve_oauth() as server, open_runtime(tmp_path) as runtime:
        desk = Desk(runtime, server)
        server.accepted.add(TOKEN)
        vault = await desk.add_vault()
        session = await desk.begin(vault)
        await talk(runtime, session, use(("vault_list", {})), say("Done."))

        id_ = f"vlt_{vault.removeprefix('s_')}"
        shown = f'{{"count":1,"vaults":[{{"id":"{id_}","displayName":"Alice","mountPath":"/vaults/{id_}"}}]}}'
        assert result_text(runtime.requests[1]).replace(" ", "") == shown
        assert await find_leaks(runtime, session, TOKEN) == []
