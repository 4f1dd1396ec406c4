"""An MCP server that wants a bearer token, and the token endpoint that gives it, on a socket of this machine."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs

from tests.runtime.servers.program import SCHEMA
from tests.runtime.servers.test_http import reply

Fields = dict[str, str]


class OAuthServer:
    """`accepted` are the access tokens that the MCP server takes; `mode` says how the token endpoint answers."""

    def __init__(self) -> None:
        self.accepted: set[str] = set()
        self.mode = "gives"
        self.lifetime: float | None = 3600
        self.base = ""
        self.used: list[str] = []
        self.forms: list[tuple[Fields, str]] = []
        self._last_method = ""

    def revoke_after(self, method: str) -> None:
        """Accept no token of now any more once a message of this method was answered."""
        self._last_method = method

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := (await reader.readuntil(b"\r\n\r\n")).decode():
                first, *lines = head.splitlines()
                headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines if line)}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                method, path = first.split()[:2]
                if path == "/token":
                    await self._give_token({key: value[0] for key, value in parse_qs(body.decode()).items()}, headers, writer)
                else:
                    self._answer(method, headers, body, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _give_token(self, form: Fields, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        self.forms.append((form, headers.get("authorization", "")))
        number = len(self.forms)
        if self.mode == "refuses":
            shown = json.dumps({"error": "invalid_grant", "seen": form, "authorization": headers.get("authorization", "")})
            reply(writer, "400 Bad Request", shown.encode())
        elif self.mode == "redirects":
            reply(writer, "302 Found", b"", Location=f"{self.base}/elsewhere")
        elif self.mode == "hostile-token":
            reply(writer, "200 OK", json.dumps({"access_token": "a\r\nX-Evil: 1"}).encode())
        elif self.mode == "endless":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
            while True:
                writer.write(b" " * 100_000)
                await writer.drain()
        else:
            access = f"access-new-{number}-PRIVATE"
            self.accepted.add(access)
            tokens: dict[str, Any] = {"access_token": access, "refresh_token": f"refresh-new-{number}-PRIVATE"}
            reply(writer, "200 OK", json.dumps({**tokens, "expires_in": self.lifetime, "token_type": "Bearer"}).encode())

    def _answer(self, method: str, headers: dict[str, str], body: bytes, writer: asyncio.StreamWriter) -> None:
        token = headers.get("authorization", "").removeprefix("Bearer ")
        message = json.loads(body or b"{}")
        if token not in self.accepted:
            reply(writer, "401 Unauthorized", f"The token {token} is not good.".encode(), "text/plain")
            return
        self.used.append(token)
        if method == "DELETE" or "id" not in message:
            reply(writer, "202 Accepted", b"")
            return
        results: dict[str, Any] = {
            "initialize": {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}},
            "tools/list": {"tools": [{"name": "echo", "description": "Says it again.", "inputSchema": SCHEMA}]},
            "tools/call": {"content": [{"type": "text", "text": f"your token is {token}"}]},
        }
        whole = {"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]}
        reply(writer, "200 OK", json.dumps(whole).encode())
        if message["method"] == self._last_method:
            self.accepted.discard(token)
            self._last_method = ""


def read_basic(authorization: str) -> str:
    return base64.b64decode(authorization.removeprefix("Basic ")).decode()


@asynccontextmanager
async def serve_oauth() -> AsyncIterator[OAuthServer]:
    server = OAuthServer()
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listening:
        server.base = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        yield server
