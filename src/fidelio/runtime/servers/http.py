"""MCP servers of the user with an address. Every request says that an agent makes it.

So a server of ours does not take it for a person's. `fidelio.mcp_client.http` bounds what the server sends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from fidelio.errors import ToolRefused
from fidelio.mcp_client.http import HttpTransport, Renew
from fidelio.runtime.credentials.exchange import open_token
from fidelio.runtime.credentials.service import ProjectVaults
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.servers.credentials import Masks
from fidelio.runtime.tools.model import RuntimeContext

_SHOWN = 300
_BEARER = "Bearer "
# The header by which our own servers know an agent (`fidelio.processes.caller`). Only those of this machine learn the run.
_AGENT, _ELSEWHERE = "Fidelio-Agent", "runtime"


async def open_endpoint(
    context: RuntimeContext,
    record: RuntimeRecord,
    name: str,
    address: str,
    headers: Mapping[str, str],
    masks: Masks,
    **how: Any,
) -> ServerEndpoint:
    """A connection, with the credential for exactly this address of the first vault of the session that has it.

    It takes the place of an `Authorization` of the definition: that belongs to the agent, the vault to its user. A token that
    the server refuses is exchanged, if the credential can be.
    """
    vaults = ProjectVaults(context, record.project)
    found = await vaults.find(record.vault_ids, address)
    if found is None:
        return ServerEndpoint(name, address, headers, masks, **how)
    vault, credential = found

    async def open_authorization(refused: str) -> str:
        token = await open_token(context, vaults, vault, credential, refused=refused.removeprefix(_BEARER))
        masks.add((token,))
        return f"{_BEARER}{token}"

    others = {key: value for key, value in headers.items() if key.lower() != "authorization"}
    authorized = {**others, "Authorization": await open_authorization("")}
    renew = open_authorization if credential.refresh is not None else None
    return ServerEndpoint(name, address, authorized, masks, renew=renew, **how)


class ServerEndpoint(HttpTransport):
    """A connection to a server with an address."""

    def __init__(
        self,
        name: str,
        address: str,
        headers: Mapping[str, str],
        masks: Masks,
        *,
        run: str,
        seconds: float,
        renew: Renew | None = None,
    ) -> None:
        marked = {**headers, _AGENT: run if _is_local(address) else _ELSEWHERE}
        super().__init__(address, marked, self._describe_failure, seconds=seconds, renew=renew)
        self._name, self._masks = name, masks

    def _describe_failure(self, what: str, said: str) -> ToolRefused:
        shown = f": {self._masks.apply(said)[:_SHOWN]}" if said else "."
        return ToolRefused(
            f"The MCP server {self._name} {what}{shown}",
            remedy="The person has to look at the server.",
            reason="mcp_server_failed",
            retryable=True,
        )


def _is_local(address: str) -> bool:
    host = urlsplit(address).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")
