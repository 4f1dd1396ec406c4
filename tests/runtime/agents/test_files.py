"""Files of agents and the trust in them, and which definition a name means."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from fidelio.errors import AgentDefinitionProblem, UntrustedProject
from fidelio.home import user_home
from fidelio.orchestrator.blueprints.catalogue import BlueprintCatalogue
from fidelio.runtime.agents.definition import AgentDefinition
from fidelio.runtime.agents.files import KIND, resolve_agent
from fidelio.runtime.agents.versions import define_agent, list_versions
from fidelio.runtime.environments import versions as environments
from fidelio.runtime.named_definitions import DefinitionFiles, read_directory
from fidelio.runtime.tools.model import RuntimeContext
from fidelio.trust import Trust, TrustedBlueprint, TrustedDirectory, update_trust
from tests.support import proves
from tests.support.users import NOBODY, needs_root

ECHO, DEMO = "model: scripted:echo\n", "model: scripted:demo\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    (made / ".fidelio" / "agents").mkdir(parents=True)
    return made


def write_agent(project: Path, name: str, text: str) -> Path:
    file = project / ".fidelio" / "agents" / f"{name}.yaml"
    file.write_text(text)
    return file


def trust(project: Path) -> None:
    """Trust the project and its agents as they are now, as `fidelio trust` does."""
    files = read_directory(KIND, project / ".fidelio" / "agents")
    seen = tuple(TrustedBlueprint(file.hash, os.path.realpath(file.source)) for file in files if file.hash)
    directory = TrustedDirectory(os.path.realpath(project))
    update_trust(user_home().path, lambda before: Trust((*before.directories, directory), (*before.blueprints, *seen)))


@proves("agents.files")
async def test_a_file_of_a_project_is_used_only_as_a_person_has_trusted_it(context: RuntimeContext, project: Path) -> None:
    file = write_agent(project, "bob", ECHO)
    with pytest.raises(UntrustedProject, match=r"The agent bob is not used\. Nobody has trusted"):
        await resolve_agent(context, str(project), "bob")

    trust(project)
    used = await resolve_agent(context, str(project), "bob")
    same = await resolve_agent(context, str(project), "bob")
    file.write_text(DEMO)
    with pytest.raises(UntrustedProject, match=r"has changed since a person trusted it. It would have: model scripted:demo"):
        await resolve_agent(context, str(project), "bob")
    trust(project)
    changed = await resolve_agent(context, str(project), "bob")

    assert (used.version, same.version, changed.version) == (1, 1, 2)
    assert (used.definition.model, changed.definition.model) == ("scripted:echo", "scripted:demo")
    assert [entry.by for entry in await list_versions(context, str(project), "bob")] == ["file", "file"]


@proves("agents.files")
async def test_a_file_comes_before_a_definition_by_command(context: RuntimeContext, project: Path) -> None:
    await define_agent(context, str(project), "bob", AgentDefinition(model="scripted:quiet"), by="a")
    assert (await resolve_agent(context, str(project), "bob")).definition.model == "scripted:quiet"

    directory = context.home.path / "agents"
    directory.mkdir()
    (directory / "bob.yaml").write_text(ECHO)
    of_home = await resolve_agent(context, str(project), "bob")
    write_agent(project, "bob", DEMO)
    trust(project)

    assert of_home.definition.model == "scripted:echo"
    assert (await resolve_agent(context, str(project), "bob")).definition.model == "scripted:demo"


@proves("agents.files")
async def test_a_broken_file_hides_no_other_and_blueprints_are_no_agents(context: RuntimeContext, project: Path) -> None:
    trust(project)
    write_agent(project, "good", ECHO)
    write_agent(project, "broken", "model: [\n")
    write_agent(project, "wrong", "modell: x\n")
    write_agent(project, "empty", "")
    write_agent(project, "bad name", ECHO)
    directory = project / ".fidelio" / "agents"
    (directory / "echo.md").write_text("---\nname: echo\ndescription: A blueprint.\n---\n")
    (directory / "folder").mkdir()
    (directory / "out.yaml").symlink_to("/etc/passwd")
    trust(project)

    listed = {file.name: bool(file.problem) for file in DefinitionFiles(KIND, context.home).list(str(project))}
    blueprints = BlueprintCatalogue([directory]).list(project)

    assert listed == {"good": False, "broken": True, "wrong": True, "empty": True, "bad name": True, "out": True}
    assert (await resolve_agent(context, str(project), "good")).version == 1
    with pytest.raises(AgentDefinitionProblem, match="modell"):
        await resolve_agent(context, str(project), "wrong")
    assert {"good", "wrong"}.isdisjoint([blueprint.name for blueprint in blueprints.agents])
    assert {broken.name for broken in blueprints.broken} == {"folder"}


@proves("agents.files")
def test_the_same_bytes_are_not_trusted_as_another_kind_of_file(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(ECHO)
    other = replace(KIND, domain=environments.KIND.domain)

    (agent,) = read_directory(KIND, tmp_path)
    (environment,) = read_directory(other, tmp_path)

    assert agent.content == environment.content
    assert agent.hash != environment.hash


@needs_root
@proves("agents.files")
async def test_a_file_that_another_user_can_write_is_not_used(context: RuntimeContext, project: Path) -> None:
    file = write_agent(project, "bob", ECHO)
    trust(project)
    os.chown(file, NOBODY, NOBODY)
    with pytest.raises(Exception, match="belongs to the user"):
        await resolve_agent(context, str(project), "bob")

    os.chown(file, 0, 0)
    file.parent.chmod(0o777)
    with pytest.raises(UntrustedProject, match="can be written by every user"):
        await resolve_agent(context, str(project), "bob")


@proves("agents.default")
async def test_the_default_agent_follows_the_variable_until_somebody_defines_it(context: RuntimeContext) -> None:
    async def resolve(**environ: str) -> tuple[int, str]:
        found = await resolve_agent(context, "/p", "default", environ=environ)
        return found.version, found.definition.model

    assert await resolve() == (1, "scripted:echo")
    assert await resolve(FIDELIO_MODEL="claude-opus-4-5") == (2, "claude-opus-4-5")
    assert await resolve(FIDELIO_MODEL="claude-opus-4-5") == (2, "claude-opus-4-5")

    await define_agent(context, "/p", "default", AgentDefinition(model="scripted:demo"), by="person:anna")
    assert await resolve(FIDELIO_MODEL="claude-opus-4-5") == (3, "scripted:demo")


@proves("agents.default")
async def test_a_wrong_variable_is_named(context: RuntimeContext) -> None:
    with pytest.raises(AgentDefinitionProblem, match="FIDELIO_MODEL cannot be used: model: The model id 'x' names no provider"):
        await resolve_agent(context, "/p", "default", environ={"FIDELIO_MODEL": "x"})


@proves("agents.default", "agents.files")
async def test_a_default_of_a_project_that_nobody_has_trusted_is_not_used(context: RuntimeContext, project: Path) -> None:
    write_agent(project, "default", "model: claude-opus-4-5\n")

    assert (await resolve_agent(context, str(project), "default", environ={})).definition.model == "scripted:echo"


@proves("agents.versions")
async def test_an_unknown_agent_is_refused_with_the_command(context: RuntimeContext) -> None:
    with pytest.raises(AgentDefinitionProblem, match="There is no agent nobody"):
        await resolve_agent(context, "/p", "nobody")
