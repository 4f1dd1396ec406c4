"""Files of agents: `.fidelio/agents/NAME.yaml` of a project, `agents/NAME.yaml` of the home. And which definition a name means.

A file decides which tools run without asking, and which programs run as MCP servers, so the trust in it is that of
`named_definitions`. The directories also hold blueprints of the orchestrator, which are folders and Markdown files.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import TypeAlias

from fidelio.errors import AgentDefinitionProblem
from fidelio.runtime.agents.definition import AgentDefinition, AgentVersion, check_agent_name, describe_effect, parse_agent
from fidelio.runtime.agents.versions import BUILT_IN, define_agent, find_author, is_archived, load_agent
from fidelio.runtime.named_definitions import DefinitionFile, DefinitionFiles, DefinitionKind
from fidelio.runtime.tools.model import RuntimeContext

DIRECTORY = "agents"
DEFAULT = "default"
# The model of the built-in agent, which needs no file; without it, a scripted one that needs no key.
MODEL_VARIABLE = "FIDELIO_MODEL"
DEFAULT_MODEL = "scripted:echo"
AgentFile: TypeAlias = DefinitionFile[AgentDefinition]
KIND = DefinitionKind(
    noun="agent",
    directory=DIRECTORY,
    domain=b"fidelio.agent.v1:",
    verb="have",
    parse=parse_agent,
    describe=describe_effect,
    check_name=check_agent_name,
)


async def resolve_agent(
    context: RuntimeContext, project: str, name: str, *, environ: Mapping[str, str] = os.environ
) -> AgentVersion:
    """The version that a new session gets: that of the nearest file, else the newest of the ledger, else the built-in default.

    Raises `AgentDefinitionProblem` for an unknown or archived name, and `UntrustedProject` if only a file that is not trusted
    has it.
    """
    files = DefinitionFiles(KIND, context.home)
    if (file := await asyncio.to_thread(files.find, name, project)) and file.content is not None:
        return await define_agent(context, project, name, file.content, by="file", source=file.hash)
    if await is_archived(context, project, name):
        raise AgentDefinitionProblem(
            f"The agent {name} is archived.", remedy="Use another one: it begins no sessions any more."
        )
    author = await find_author(context, project, name)
    # A built-in version follows the variable, also when that has changed.
    if name == DEFAULT and author in ("", BUILT_IN):
        return await define_agent(context, project, name, built_in_agent(environ), by=BUILT_IN)
    try:
        return await load_agent(context, project, name)
    except AgentDefinitionProblem:
        if untrusted := await asyncio.to_thread(files.describe_untrusted, name, project):
            raise untrusted from None
        raise


async def define_files(context: RuntimeContext, project: str) -> None:
    """Store what the files that may be used say now, so that lists show their agents."""
    for file in await asyncio.to_thread(DefinitionFiles(KIND, context.home).list, project):
        if file.content is not None and not file.problem:
            await define_agent(context, project, file.name, file.content, by="file", source=file.hash)


def built_in_agent(environ: Mapping[str, str] = os.environ) -> AgentDefinition:
    """The definition of `default` where nobody has defined it."""
    model = environ.get(MODEL_VARIABLE) or DEFAULT_MODEL
    return parse_agent({"model": model, "description": "The built-in agent."}, f"The agent of {MODEL_VARIABLE}")
