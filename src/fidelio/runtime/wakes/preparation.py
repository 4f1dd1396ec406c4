"""Everything that a wake needs to know before it calls the model: agent, model, tools, texts, limits."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from fidelio.providers.model import ModelInfo, Provider, ToolDeclaration
from fidelio.runtime.agents.definition import AgentVersion, Budget, CustomTool
from fidelio.runtime.agents.versions import load_session_agent
from fidelio.runtime.bootstrap.files import BootstrapFile, load_bootstrap
from fidelio.runtime.environments.versions import load_environment
from fidelio.runtime.memory_stores.mounting import list_stores
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.setup.sections import list_mounts
from fidelio.runtime.skills.catalogue import Skill, list_skills
from fidelio.runtime.skills.scanning import UPLOADED
from fidelio.runtime.tools.catalogue import NO_EXTRA, ExtraTool
from fidelio.runtime.tools.definitions import RUNTIME_TOOL_NAMES
from fidelio.runtime.tools.meta import declare_tools
from fidelio.runtime.tools.meta_definitions import META_NAMES
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext
from fidelio.runtime.wakes.prompt import PromptSubject, build_sections, join_sections
from fidelio.runtime.wakes.rules import merge_budget
from fidelio.sandbox.model import SKILLS


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """What a wake works with. `model` is the id that names the provider, `vendor_model` the vendor's own name."""

    agent: AgentVersion
    model: str
    provider: Provider
    vendor_model: str
    info: ModelInfo
    budget: Budget
    sections: Mapping[str, str]
    tools: frozenset[str]
    custom: Mapping[str, CustomTool]
    declarations: tuple[ToolDeclaration, ...]
    bootstrap: tuple[BootstrapFile, ...]
    skills: tuple[Skill, ...]
    # The tools of MCP servers, and what the model is told about the servers.
    extra: Mapping[str, ExtraTool] = NO_EXTRA
    notices: tuple[str, ...] = ()

    @property
    def system(self) -> str:
        return join_sections(self.sections)

    @property
    def fixed_characters(self) -> int:
        """Characters of every request that are not the conversation."""
        declared = sum(
            len(tool.name) + len(tool.description) + len(msgspec.json.encode(tool.input_schema)) for tool in self.declarations
        )
        return len(self.system) + declared


async def prepare(context: RuntimeContext, session: LoadedRuntime) -> Prepared:
    """Load what the wake needs. Raises `AgentDefinitionProblem`, `EnvironmentProblem` and `ModelProblem`."""
    record = session.record
    agent = await load_session_agent(context, record)
    definition, model = agent.definition, record.model or agent.definition.model
    provider, vendor_model = context.ports.models.find(model)
    tools = offer_tools(agent, record)
    custom = {tool.name: tool for tool in definition.tools.custom}
    extra = {tool.name: ToolDeclaration(tool.name, tool.description, tool.input_schema) for tool in custom.values()}
    bootstrap = await load_bootstrap(context, record.project, record.agent)
    skills = await list_skills(context, record.project, definition.skills)
    return Prepared(
        agent=agent,
        model=model,
        provider=provider,
        vendor_model=vendor_model,
        info=context.ports.models.describe(model),
        budget=merge_budget(definition.limits, record.budget),
        sections=build_sections(await _describe(context, session, agent, bootstrap, skills)),
        tools=tools,
        custom=custom,
        declarations=declare_tools(tools, extra, all_tools=definition.tools.all_tools),
        bootstrap=bootstrap,
        skills=skills,
    )


def offer_tools(agent: AgentVersion, record: RuntimeRecord) -> frozenset[str]:
    """The tools of a session: those of its agent, and for a child at most those of its parent."""
    wanted = agent.definition.tools
    names = RUNTIME_TOOL_NAMES if wanted.only is None else RUNTIME_TOOL_NAMES & frozenset(wanted.only)
    narrowed = names & frozenset(record.tools) if record.tools else names
    return (narrowed - frozenset(wanted.without)) | META_NAMES


async def _describe(
    context: RuntimeContext,
    session: LoadedRuntime,
    agent: AgentVersion,
    bootstrap: tuple[BootstrapFile, ...],
    skills: tuple[Skill, ...],
) -> PromptSubject:
    record = session.record
    environment = await load_environment(context, record.environment, record.environment_version)
    return PromptSubject(
        agent=record.agent,
        system=agent.definition.system,
        environment=environment.name,
        network=environment.environment.network,
        mounts=[(mount["mountPath"], mount["access"]) for mount in list_mounts(record, environment.environment)],
        bootstrap=[(file.name, file.text) for file in bootstrap],
        memory_stores=[
            (store.path, store.access, store.title, store.description, store.instructions) for store in list_stores(record)
        ],
        skills=[_describe_skill(skill) for skill in sorted(skills, key=lambda skill: skill.source != UPLOADED)],
    )


def _describe_skill(skill: Skill) -> tuple[str, str]:
    """An uploaded skill has files, which the agent reads in its sandbox."""
    folder = f"(files: {SKILLS}/{skill.name}) " if skill.source == UPLOADED else ""
    return skill.name, f"{folder}{skill.description}"
