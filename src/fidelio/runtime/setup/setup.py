"""Setup of a session: the fingerprint of everything that decides how its agent works, with a section for each kind of thing.

A wake computes it and stores it as a document of the session, so that other sessions can compare theirs with it without
loading what it was made from. It is never read back to decide how the agent works.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from fidelio.ledger.model import PutDocument
from fidelio.runtime.agents.definition import AgentVersion
from fidelio.runtime.environments.versions import load_environment
from fidelio.runtime.setup import sections as s
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext, ToolDefinition

SECTION_NAMES = (
    "provider_model",
    "prompt",
    "bootstrap_files",
    "tools",
    "skills",
    "environment",
    "mounts",
    "permissions",
    "vaults",
)
PATH = "setup"
# Items that a comparison names of each kind in a section.
_NAMED_ITEMS = 20


class Setup(msgspec.Struct, frozen=True):
    """A setup. `sections` are fingerprints by section name; `items` what each section consists of."""

    fingerprint: str
    sections: dict[str, str]
    items: dict[str, dict[str, Any]]
    # What the agent has learned, which is no part of its setup.
    memory_fingerprint: str

    @property
    def environment_fingerprint(self) -> str:
        return self.sections["environment"]

    @property
    def resource_contract_fingerprint(self) -> str:
        """What the session has mounted, and how."""
        return s.fingerprint([self.sections["mounts"], self.sections["vaults"]])

    def to_json(self) -> dict[str, Any]:
        """The setup for an agent."""
        return {
            "fingerprint": self.fingerprint,
            "memoryFingerprint": self.memory_fingerprint,
            "environmentFingerprint": self.environment_fingerprint,
            "resourceContractFingerprint": self.resource_contract_fingerprint,
            "sections": {
                name: {"fingerprint": self.sections[name], "count": len(self.items[name]), "items": self.items[name]}
                for name in SECTION_NAMES
            },
        }


async def describe_setup(
    context: RuntimeContext,
    session: LoadedRuntime,
    *,
    agent: AgentVersion,
    prompt_sections: Mapping[str, str],
    tools: Sequence[ToolDefinition],
    bootstrap: Sequence[s.BootstrapText] = (),
    skills: Sequence[s.SkillEntry] = (),
) -> Setup:
    """The setup of a session. `prompt_sections`, `bootstrap` and `skills` are what its prompt consists of."""
    record, definition = session.record, agent.definition
    environment = (await load_environment(context, record.environment, record.environment_version)).environment
    items: dict[str, s.Items] = {
        "provider_model": s.describe_model(record, definition),
        "prompt": s.describe_prompt(prompt_sections, session.id),
        "bootstrap_files": s.describe_bootstrap(bootstrap),
        "tools": s.describe_tools(tools, definition),
        "skills": s.describe_skills(skills),
        "environment": s.describe_environment(environment),
        "mounts": s.describe_mounts(record, environment),
        "permissions": s.describe_permissions(record, tools),
        "vaults": s.describe_vaults(record),
    }
    return build_setup(items, s.describe_memory(bootstrap))


def build_setup(items: Mapping[str, s.Items], memory: s.Items) -> Setup:
    found = {name: s.fingerprint(items[name]) for name in SECTION_NAMES}
    return Setup(s.fingerprint(found), found, {name: dict(items[name]) for name in SECTION_NAMES}, s.fingerprint(memory))


def setup_document(session_id: str, setup: Setup) -> PutDocument:
    """The document that a wake commits when the setup, or what was learned, differs from what is stored."""
    text = msgspec.json.encode(setup, order="sorted").decode()
    return PutDocument(space=_space(session_id), path=PATH, text=text)


async def load_setup(context: RuntimeContext, session_id: str) -> Setup | None:
    """The setup of a session at its last wake; None if it has had no wake."""
    document = await context.ledger.document(_space(session_id), PATH)
    if document is None or document.text is None:
        return None
    found = msgspec.json.decode(document.text, type=Setup)
    # A setup of another release may have other sections; then it cannot be compared.
    return found if set(found.sections) == set(found.items) == set(SECTION_NAMES) else None


def compare_setups(own: Setup, other: Setup) -> dict[str, Any]:
    """Name the sections that differ, and in each the items that differ or that only a single side has."""
    changed = [name for name in SECTION_NAMES if own.sections[name] != other.sections[name]]
    return {
        "sameSetup": own.fingerprint == other.fingerprint,
        "sameMemory": own.memory_fingerprint == other.memory_fingerprint,
        "changedSections": changed,
        "differences": {name: _compare_items(own.items[name], other.items[name]) for name in changed},
    }


def _compare_items(own: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, list[str]]:
    return {
        "onlyCurrent": sorted(own.keys() - other.keys())[:_NAMED_ITEMS],
        "onlyTarget": sorted(other.keys() - own.keys())[:_NAMED_ITEMS],
        "changed": sorted(name for name in own.keys() & other.keys() if own[name] != other[name])[:_NAMED_ITEMS],
    }


def _space(session_id: str) -> str:
    return f"runtime:{session_id}"
