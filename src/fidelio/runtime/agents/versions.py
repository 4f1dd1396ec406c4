"""Versions of agents: immutable documents in the store of an agent in a project, numbered from 1.

A session keeps the version that it began with, so what an agent was at any moment can be read later. The store is the one that
owns the shared files of the agent: deleting it deletes the agent as a whole.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress

import msgspec

from fidelio.errors import AgentDefinitionProblem, Command, DocumentConflict, Hint
from fidelio.ledger.model import Document, NewEvent, PutDocument
from fidelio.runtime import events as e
from fidelio.runtime.agents.definition import AgentDefinition, AgentVersion, check_agent_name, decode_agent
from fidelio.runtime.named_definitions import VersionedDocument, put_version
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.stores import describe, find_store, iter_substrates, open_store
from fidelio.runtime.tools.model import RuntimeContext

# The author of versions that are not a person's or a file's.
BUILT_IN = "built-in"
DEFINITION_PATH, _VARIANTS = "definition", "variants"
# As many names as an error lists.
_NAMED = 20


class VersionEntry(msgspec.Struct, frozen=True):
    """A version in a list. `by` is the person who defined it, `file` or `built-in`."""

    version: int
    by: str
    time: int
    model: str


async def define_agent(
    context: RuntimeContext, project: str, name: str, definition: AgentDefinition, *, by: str, source: str = ""
) -> AgentVersion:
    """Store a content that `parse_agent` has checked as a new version, unless the newest version has it."""
    check_agent_name(name)
    store = await open_store(context, "substrate", project=project, agent=name)
    body = {"name": name, "source": source, "model": definition.model}
    document = VersionedDocument(
        store=store, space=agent_space(store.id), path=DEFINITION_PATH, event=e.AGENT_DEFINED, body=body
    )
    version = await put_version(context, document, describe(msgspec.to_builtins(definition)), by=by)
    if version is None:
        raise AgentDefinitionProblem(f"The agent {name} is being changed by others.", remedy="Try again.", retryable=True)
    return AgentVersion(name, version, definition)


async def load_agent(
    context: RuntimeContext, project: str, name: str, version: int | None = None, *, variant: str = ""
) -> AgentVersion:
    """A version of an agent: the newest if `version` is None. Raises `AgentDefinitionProblem` if there is none.

    `variant`: a definition that a session has in place of that of the version.
    """
    check_agent_name(name)
    found = await _find_document(context, project, name, version)
    if found is None or found.text is None:
        raise await _unknown(context, project, name, version)
    return await _load_variant(context, project, _to_version(name, found), variant) if variant else _to_version(name, found)


async def load_session_agent(context: RuntimeContext, record: RuntimeRecord) -> AgentVersion:
    """The agent of a session, as the session has it."""
    return await load_agent(context, record.project, record.agent, record.agent_version, variant=record.agent_variant)


async def define_variant(context: RuntimeContext, project: str, name: str, definition: AgentDefinition, *, by: str) -> str:
    """Store a content that `parse_agent` has checked for sessions that differ from every version of their agent."""
    store, text = await open_store(context, "substrate", project=project, agent=name), describe(msgspec.to_builtins(definition))
    variant = hashlib.sha256(text.encode()).hexdigest()[:32]
    path = f"{_VARIANTS}/{variant}"
    if await context.ledger.document(agent_space(store.id), path) is None:
        event = NewEvent(type=e.AGENT_VARIED, body={"name": name, "variant": variant, "by": by}, actor=by)
        document = PutDocument(space=agent_space(store.id), path=path, text=text, author=by, expect=0)
        # Another session with the same content may have been faster.
        with suppress(DocumentConflict):
            await context.ledger.commit(store.change(event, documents=(document,)))
    return variant


async def find_author(context: RuntimeContext, project: str, name: str) -> str:
    """The author of the newest version; empty if there is no version."""
    found = await _find_document(context, project, name, None)
    return "" if found is None or found.text is None else found.author


async def is_archived(context: RuntimeContext, project: str, name: str) -> bool:
    """Whether a program has archived the agent."""
    store = await find_store(context, "substrate", project=project, agent=name)
    return store is not None and (await context.unit.load(store.id)).record.is_archived


async def list_agents(context: RuntimeContext, project: str) -> tuple[AgentVersion, ...]:
    """The newest version of each agent that is defined in a project, by name."""
    found = []
    async for name, store in iter_substrates(context, project):
        document = await context.ledger.document(agent_space(store.id), DEFINITION_PATH)
        if document is not None and document.text is not None:
            found.append(_to_version(name, document))
    return tuple(sorted(found, key=lambda agent: agent.name))


async def list_versions(context: RuntimeContext, project: str, name: str, *, limit: int = 50) -> tuple[VersionEntry, ...]:
    """The versions of an agent, newest first."""
    check_agent_name(name)
    store = await find_store(context, "substrate", project=project, agent=name)
    listed = () if store is None else await context.ledger.versions(agent_space(store.id), DEFINITION_PATH, limit=limit)
    if not listed:
        raise await _unknown(context, project, name, None)
    entries = []
    for document in listed:
        model = (await load_agent(context, project, name, document.version)).definition.model
        entries.append(VersionEntry(document.version, document.author, document.time, model))
    return tuple(entries)


async def _find_document(context: RuntimeContext, project: str, name: str, version: int | None) -> Document | None:
    store = await find_store(context, "substrate", project=project, agent=name)
    return None if store is None else await context.ledger.document(agent_space(store.id), DEFINITION_PATH, version=version)


async def _load_variant(context: RuntimeContext, project: str, agent: AgentVersion, variant: str) -> AgentVersion:
    store = await open_store(context, "substrate", project=project, agent=agent.name)
    found = await context.ledger.document(agent_space(store.id), f"{_VARIANTS}/{variant}")
    if found is None or found.text is None:
        raise AgentDefinitionProblem(f"There is no variant {variant!r:.80} of the agent {agent.name}.")
    return msgspec.structs.replace(agent, definition=_to_version(agent.name, found).definition)


def _to_version(name: str, document: Document) -> AgentVersion:
    assert document.text is not None
    where = f"Version {document.version} of the agent {name}"
    return AgentVersion(name, document.version, decode_agent(document.text, where))


def agent_space(store: str) -> str:
    """The space of the definitions, apart from the shared files, which agents read and change."""
    return f"agent:{store}"


async def _unknown(context: RuntimeContext, project: str, name: str, version: int | None) -> AgentDefinitionProblem:
    known = ", ".join([agent.name for agent in await list_agents(context, project)][:_NAMED])
    which = f"{name}, version {version}" if version else name
    listed = f"Known in this project: {known}. " if known else ""
    return AgentDefinitionProblem(
        f"There is no agent {which}.",
        remedy=Hint(
            listed, Command("runtime", "define", f"{name}.yaml"), f" defines one, or write .fidelio/agents/{name}.yaml."
        ),
    )
