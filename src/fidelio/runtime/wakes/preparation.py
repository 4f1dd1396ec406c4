"""Everything that a wake needs to know before it calls the model: agent, model, tools, texts, limits."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from fidelio.providers.model import ModelInfo, Provider, ToolDeclaration
from fidelio.runtime.agent_toolset.tools import build_tools
from fidelio.runtime.agents.definition import AgentVersion, Budget, CustomTool
from fidelio.runtime.agents.versions import load_session_agent
from fidelio.runtime.bootstrap.files import BootstrapFile, load_bootstrap
from fidelio.runtime.delegation.roster import DELEGATION_NAMES, name_roster
from fidelio.runtime.environments.versions import EnvironmentVersion, load_environment
from fidelio.runtime.memory_stores.mounting import list_stores
from fidelio.runtime.permissions.policy import find_policy
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.setup.sections import list_mounts
from fidelio.runtime.skills.catalogue import Skill, list_skills
from fidelio.runtime.skills.scanning import UPLOADED
from fidelio.runtime.tools.catalogue import NO_EXTRA, ExtraTool
from fidelio.runtime.tools.definitions import DEFINITIONS, RUNTIME_TOOL_NAMES
from fidelio.runtime.tools.meta import declare, declare_tools
from fidelio.runtime.tools.meta_definitions import META_NAMES
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext, ToolDefinition
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
    # The tools of `agent_toolset_20260401` and of MCP servers, and what the model is told about the servers.
    extra: Mapping[str, ExtraTool] = NO_EXTRA
    # Those that a worker of the user carries out without that a person is asked.
    handed_over: frozenset[str] = frozenset()
    notices: tuple[str, ...] = ()

    @property
    def offer(self) -> Offer:
        return Offer(self.tools, self.extra)

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
    environment = await load_environment(context, record.environment, record.environment_version)
    offer = find_offer(context, agent, record, environment)
    custom = {tool.name: tool for tool in definition.tools.custom}
    callers = {tool.name: ToolDeclaration(tool.name, tool.description, tool.input_schema) for tool in custom.values()}
    declared = {name: declare(tool) for name, (tool, _) in offer.extra.items()} | callers
    bootstrap = await load_bootstrap(context, record.project, record.agent)
    skills = await list_skills(context, record.project, definition.skills)
    return Prepared(
        agent=agent,
        model=model,
        provider=provider,
        vendor_model=vendor_model,
        info=context.ports.models.describe(model),
        budget=merge_budget(definition.limits, record.budget),
        sections=build_sections(_describe(session, agent, environment, bootstrap, skills)),
        tools=offer.tools,
        custom=custom,
        declarations=declare_tools(offer.tools, declared, all_tools=definition.tools.all_tools),
        bootstrap=bootstrap,
        skills=skills,
        extra=offer.extra,
        handed_over=frozenset(
            name
            for name, (tool, implementation) in offer.extra.items()
            if implementation.is_elsewhere and find_policy(tool, record) == "always_allow"
        ),
    )


class Offer(msgspec.Struct, frozen=True):
    """The tools of a session: the names of our own ones, and those of this session alone."""

    tools: frozenset[str]
    extra: Mapping[str, ExtraTool] = NO_EXTRA

    def find(self, name: str) -> ToolDefinition | None:
        """The definition of a tool as this session has it: some names are in two toolsets."""
        found = self.extra.get(name)
        return found[0] if found is not None else DEFINITIONS.get(name)

    @property
    def definitions(self) -> list[ToolDefinition]:
        """Those of the session without the tools of MCP servers, by name."""
        own = {name: tool for name, (tool, _) in self.extra.items() if tool.ownership == "managed" and name not in META_NAMES}
        found = {name: DEFINITIONS[name] for name in self.tools} | own
        return [found[name] for name in sorted(found)]


def find_offer(context: RuntimeContext, agent: AgentVersion, record: RuntimeRecord, environment: EnvironmentVersion) -> Offer:
    rights = frozenset(record.tools) if record.tools else None
    search, is_self_hosted = context.ports.web_search, environment.environment.self_hosted
    own: Mapping[str, ExtraTool] = build_tools(agent.definition.tools, rights, search, is_self_hosted=is_self_hosted)
    return Offer(offer_tools(agent, record), own)


def offer_tools(agent: AgentVersion, record: RuntimeRecord) -> frozenset[str]:
    """The tools of a session: those of its agent, and for a child at most those of its parent."""
    wanted = agent.definition.tools
    if wanted.toolset != "fidelio_toolset":
        # Only what delegates, and only where there is somebody to delegate to.
        has_roster = agent.definition.multiagent is not None
        return DELEGATION_NAMES if has_roster and (not record.tools or set(record.tools) >= DELEGATION_NAMES) else frozenset()
    names = RUNTIME_TOOL_NAMES if wanted.only is None else RUNTIME_TOOL_NAMES & frozenset(wanted.only)
    narrowed = names & frozenset(record.tools) if record.tools else names
    return (narrowed - frozenset(wanted.without)) | META_NAMES


def _describe(
    session: LoadedRuntime,
    agent: AgentVersion,
    environment: EnvironmentVersion,
    bootstrap: tuple[BootstrapFile, ...],
    skills: tuple[Skill, ...],
) -> PromptSubject:
    record = session.record
    toolset, is_remote = agent.definition.tools.toolset, environment.environment.self_hosted
    is_own = toolset == "fidelio_toolset"
    return PromptSubject(
        toolset=toolset,
        roster=name_roster(agent),
        agent=record.agent,
        system=agent.definition.system,
        environment=environment.name,
        network="that of the machine whose worker runs the tools" if is_remote else environment.environment.network,
        mounts=[]
        if is_remote
        else [(mount["mountPath"], mount["access"]) for mount in list_mounts(record, environment.environment)],
        # What these say is about tools and files that only our own toolset has.
        bootstrap=[] if not is_own else [(file.name, file.text) for file in bootstrap],
        memory_stores=[
            (store.path, store.access, store.title, store.description, store.instructions) for store in list_stores(record)
        ],
        skills=[
            _describe_skill(skill)
            for skill in sorted(skills, key=lambda skill: skill.source != UPLOADED)
            if is_own or skill.source == UPLOADED
        ],
    )


def _describe_skill(skill: Skill) -> tuple[str, str]:
    """An uploaded skill has files, which the agent reads in its sandbox."""
    folder = f"(files: {SKILLS}/{skill.name}) " if skill.source == UPLOADED else ""
    return skill.name, f"{folder}{skill.description}"
