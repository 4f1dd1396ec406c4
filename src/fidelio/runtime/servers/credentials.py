"""Credentials of MCP servers: values of vaults, which only our own client sees, and masks for what a server says.

A value `vault:NAME` stands for the value of a vault that the session is attached to, `vault:NAME/KEY` for one of its keys if it
is a JSON object. It goes to the server and nowhere else: no event, prompt, result or error has it, also if the server repeats
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from fidelio.errors import VaultProblem
from fidelio.runtime.agents.definition import VAULT
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.tools.model import RuntimeContext
from fidelio.runtime.vaults import Vaults

MASK = "(secret)"
# Shorter values occur in any text; they are no secrets that could be guarded.
_SHORTEST = 4


class Masks(msgspec.Struct):
    """Replaces secret values in texts of a server. All who work with a connection share its masks."""

    values: tuple[str, ...] = ()

    @classmethod
    def of(cls, values: Iterable[str]) -> Masks:
        masks = cls()
        masks.add(values)
        return masks

    def add(self, values: Iterable[str]) -> None:
        found = {value for value in values if len(value) >= _SHORTEST}
        # The longest first: one may be a part of another.
        self.values = tuple(sorted(found.union(self.values), key=len, reverse=True))

    def apply(self, text: str) -> str:
        for value in self.values:
            text = text.replace(value, MASK)
        return text


class ResolvedValues(msgspec.Struct, frozen=True):
    """The variables or headers of a server, with their secrets."""

    values: Mapping[str, str]
    secrets: tuple[str, ...] = ()


async def resolve_values(context: RuntimeContext, record: RuntimeRecord, values: Mapping[str, str]) -> ResolvedValues:
    """Replace what names a vault. Raises `VaultProblem`, which never contains a value."""
    resolved, secrets = dict(values), list[str]()
    for name, value in values.items():
        if value.startswith(VAULT):
            resolved[name] = await _open(context, record, value.removeprefix(VAULT))
            _check(name, resolved[name])
            secrets.append(resolved[name])
            # A header may be `Bearer TOKEN`; a server repeats the token alone.
            secrets += resolved[name].split()
    return ResolvedValues(resolved, tuple(secrets))


async def _open(context: RuntimeContext, record: RuntimeRecord, reference: str) -> str:
    vault, _, key = reference.partition("/")
    value = await Vaults(context).open_value(record, vault)
    if not key:
        # A value that was read from a file ends with a newline, which neither a header nor a variable can have.
        return value.rstrip("\r\n")
    try:
        found = msgspec.json.decode(value, type=dict[str, str])[key]
    except (msgspec.MsgspecError, KeyError):
        # Without the cause: it quotes the value.
        raise VaultProblem(
            f"The vault {vault} has no key {key!r:.80}.", remedy="Store a JSON object of texts with this key."
        ) from None
    return found


def _check(name: str, value: str) -> None:
    if not value or not value.isprintable():
        raise VaultProblem(
            f"The value for {name!r:.80} is empty, or has characters that cannot be sent.", remedy="Store it as a single line."
        )
