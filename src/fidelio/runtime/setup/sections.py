"""The sections of a setup, each a mapping from the names of its items to values or digests. Pure.

Nothing in them belongs to one session or one machine: no ids, no directories of the host, no learned memory. So two sessions of
an agent with the same setup have equal fingerprints, and sessions can be compared item by item.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from fidelio.runtime.agents.definition import AgentDefinition
from fidelio.runtime.environments.preparation import MOUNT as TOOLCHAIN
from fidelio.runtime.environments.versions import Environment
from fidelio.runtime.permissions.policy import find_policy
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.resources.memory_file import SECTIONS as MANAGED
from fidelio.runtime.tools.model import ToolDefinition
from fidelio.runtime.uploads.projection import has_files
from fidelio.sandbox.model import LEARNINGS, PROJECT, RUNTIME, RUNTIME_LINK, SKILLS, SUBSTRATE, UPLOADS, VAULTS, WORKSPACE

Items = Mapping[str, Any]
# Enough to tell contents apart; a section has the whole digest of all its items.
_SHORT = 16
_MANAGED = re.compile("|".join(rf"<!-- fidelio:{name}:begin -->.*?<!-- fidelio:{name}:end -->" for name in MANAGED), re.DOTALL)
# Parts of the system text that show what other sections of the setup cover.
_COVERED = frozenset({"environment", "bootstrap", "skills"})
# The mounts of every session, with access and kind.
_MOUNTS: Mapping[str, tuple[str, str]] = {
    WORKSPACE: ("read_write", "session_workspace"),
    SUBSTRATE: ("read_only", "agent_workspace_substrate"),
    RUNTIME: ("read_only", "session_runtime_memory"),
    RUNTIME_LINK: ("read_only", "session_runtime_memory"),
    LEARNINGS: ("read_only", "learnings_memory_store"),
}


class BootstrapText(Protocol):
    """A bootstrap file (`fidelio.runtime.bootstrap`)."""

    @property
    def name(self) -> str: ...
    @property
    def text(self) -> str: ...


class SkillEntry(Protocol):
    """A skill (`fidelio.runtime.skills`)."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def digest(self) -> str: ...


def fingerprint(value: Any) -> str:
    """SHA-256 of the canonical JSON of a value."""
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()


def describe_model(record: RuntimeRecord, definition: AgentDefinition) -> Items:
    """The model that the session uses, and what its requests are made with."""
    return {
        "model": record.model or definition.model,
        "grader": definition.grader,
        "maxOutputTokens": definition.max_output_tokens,
    }


def describe_prompt(sections: Mapping[str, str], session: str) -> Items:
    """Digests of the sections of the system text. The id of the session and learned memory make no difference."""
    own = {name: text for name, text in sections.items() if name not in _COVERED}
    return {name: _digest(drop_managed(text).replace(session, "")) for name, text in own.items()}


def describe_bootstrap(files: Iterable[BootstrapText]) -> Items:
    return {file.name: _digest(drop_managed(file.text)) for file in files}


def describe_memory(files: Iterable[BootstrapText]) -> Items:
    """What was learned: the managed sections of the bootstrap files."""
    found = {file.name: _MANAGED.findall(file.text) for file in files}
    return {name: _digest("\n".join(learned)) for name, learned in found.items() if learned}


def drop_managed(text: str) -> str:
    """A text without the managed sections of MEMORY.md."""
    return _MANAGED.sub("", text) if "<!-- fidelio:" in text else text


def describe_tools(tools: Iterable[ToolDefinition], definition: AgentDefinition) -> Items:
    """Digests of what the tools are and do, under their names. Whom they ask is in the permissions."""
    own = {tool.name: fingerprint(_list_facts(tool))[:_SHORT] for tool in tools}
    custom = {tool.name: fingerprint(msgspec.to_builtins(tool))[:_SHORT] for tool in definition.tools.custom}
    # Their commands are paths of the host.
    servers = {f"mcp:{name}": "command" if server.command else "url" for name, server in definition.tools.mcp_servers.items()}
    return {**own, **custom, **servers}


def _list_facts(tool: ToolDefinition) -> list[Any]:
    return [
        tool.description,
        tool.parameters.__struct_fields__,
        tool.effects,
        tool.ownership,
        tool.read_only,
        tool.destructive,
        tool.is_gated,
        tool.interrupt,
    ]


def describe_skills(skills: Iterable[SkillEntry]) -> Items:
    return {skill.name: f"{skill.source} {skill.digest[:_SHORT]}" for skill in skills}


def describe_environment(environment: Environment) -> Items:
    """What commands find: its network, programs and limits. Values of variables and paths of the host only as digests."""
    return {
        "network": environment.network,
        "hosts": list(environment.hosts),
        "packages": list(environment.packages),
        "setup": _digest(environment.setup),
        "limits": msgspec.to_builtins(environment.limits),
        "variables": {name: _digest(value) for name, value in environment.variables.items()},
        "readOnlyPaths": fingerprint(environment.read_only)[:_SHORT],
    }


def describe_mounts(record: RuntimeRecord, environment: Environment) -> Items:
    """The mounts that `fidelio.runtime.specs` gives to the session, without vaults and without directories of the host."""
    return {path: f"{access} {kind}" for path, (access, kind) in (*_MOUNTS.items(), *_more_mounts(record, environment))}


def list_mounts(record: RuntimeRecord, environment: Environment) -> list[dict[str, str]]:
    """The mounts of a session with its vaults, as tools and files show them."""
    found = {path: described.split(" ", 1) for path, described in describe_mounts(record, environment).items()}
    names = (*record.vaults, *(f"vlt_{id_.removeprefix('s_')}" for id_ in record.vault_ids))
    vaults = [{"mountPath": f"{VAULTS}/{name}", "access": "read_only", "kind": "vault"} for name in names]
    return [*({"mountPath": path, "access": access, "kind": kind} for path, (access, kind) in found.items()), *vaults]


def _more_mounts(record: RuntimeRecord, environment: Environment) -> Iterator[tuple[str, tuple[str, str]]]:
    if record.mount_mode:
        yield PROJECT, ("read_only" if record.mount_mode == "ro" else "read_write", "project")
    for resource in record.resources:
        if resource.type == "memory_store":
            yield resource.content["mount_path"], (resource.content.get("access", "read_write"), "memory_store")
    if has_files(record):
        yield UPLOADS, ("read_only", "session_files")
    yield from ((f"{SKILLS}/{skill.name}", ("read_only", "skills")) for skill in record.skills)
    if environment.needs_preparation:
        yield TOOLCHAIN, ("read_only", "toolchain")


def describe_permissions(record: RuntimeRecord, tools: Sequence[ToolDefinition]) -> Items:
    """The policies that are not `always_allow`, and those of actions that are no tools."""
    named = {tool.name: find_policy(tool, record) for tool in tools}
    actions = {name: policy for name, policy in record.policies.items() if name not in named}
    return {name: policy for name, policy in {**actions, **named}.items() if policy != "always_allow" or name in actions}


def describe_vaults(record: RuntimeRecord) -> Items:
    return dict.fromkeys(record.vaults, "attached")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:_SHORT]
