"""The group `/v1/environments`, driven by the official SDK over a socket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from anthropic import AsyncAnthropic, BadRequestError, NotFoundError
from anthropic.types.beta import BetaEnvironment

from fidelio.app.application import Application
from fidelio.runtime.agents.versions import list_agents
from fidelio.runtime.environments.service import FILE
from fidelio.runtime.environments.versions import Environment, define
from fidelio.runtime.sessions import NewAgentSession
from fidelio.surfaces.http.v1 import environments as group
from tests.support import proves
from tests.surfaces.v1.conftest import KEY
from tests.surfaces.v1.requests import send
from tests.surfaces.v1.strict import check_json

LIMITED: dict[str, Any] = {"type": "limited", "allowed_hosts": ["api.example.com"]}
STATUS = "Package: git\nStatus: install ok installed\nVersion: 1:2.39\n\nPackage: gone\nStatus: deinstall ok config-files\n"


def cloud(**fields: Any) -> Any:
    return {"type": "cloud", **fields}


async def load(application: Application, id_: str) -> Environment:
    return (await (await application.runtime()).environments.load(id_)).environment


@proves("v1.environments-create")
async def test_a_created_environment_comes_back_in_full(sdk: AsyncAnthropic, application: Application) -> None:
    created = await sdk.beta.environments.create(name="Offline", config=cloud(networking=LIMITED))

    found = await sdk.beta.environments.retrieve(created.id)
    assert found == created
    assert found.config.to_dict() == {
        "type": "cloud",
        "networking": {**LIMITED, "allow_mcp_servers": False, "allow_package_managers": False},
        "packages": {"type": "packages", "apt": [], "cargo": [], "gem": [], "go": [], "npm": [], "pip": []},
    }
    chosen = await load(application, created.id)
    assert (chosen.network, chosen.hosts, chosen.mcp_servers) == ("limited", ("api.example.com",), False)


@proves("v1.environments-create")
@pytest.mark.parametrize(
    ("config", "network"),
    [
        (None, "unrestricted"),
        (cloud(), "unrestricted"),
        (cloud(networking={"type": "unrestricted"}), "unrestricted"),
        (cloud(networking={"type": "limited"}), "none"),
        (cloud(networking={"type": "limited", "allow_package_managers": True}), "limited"),
    ],
)
async def test_the_network_is_that_of_our_sandboxes(
    sdk: AsyncAnthropic, application: Application, config: Any, network: str
) -> None:
    created = await sdk.beta.environments.create(name="E", config=config)

    assert (await load(application, created.id)).network == network


@proves("v1.environments-shape")
@pytest.mark.parametrize("config", [cloud(networking=LIMITED), cloud(), {"type": "self_hosted"}])
async def test_an_environment_has_the_shape_of_the_sdk(url: str, config: Any) -> None:
    body = {"name": "E", "description": "For work.", "config": config, "metadata": {"a": "b"}, "scope": "organization"}
    answer = await send("POST", f"{url}/v1/environments", body)

    check_json(BetaEnvironment, answer.json())
    assert {name: answer.json()[name] for name in ("name", "description", "metadata", "scope")} == {
        name: body[name] for name in ("name", "description", "metadata", "scope")
    }
    check_json(BetaEnvironment, (await send("GET", f"{url}/v1/environments/env_default")).json())


@proves("v1.environments-update")
async def test_an_update_keeps_what_it_does_not_name(sdk: AsyncAnthropic, application: Application) -> None:
    first = cloud(networking={**LIMITED, "allow_package_managers": True}, packages={"pip": ["attrs"], "npm": ["left-pad"]})
    made = await sdk.beta.environments.create(name="E", description="First.", config=first, metadata={"a": "1", "b": "2"})

    await sdk.beta.environments.update(made.id, metadata={"a": "", "b": None, "c": "3"})
    await sdk.beta.environments.update(made.id, config=cloud(networking={"type": "limited", "allow_mcp_servers": True}))
    changed = await sdk.beta.environments.update(made.id, config=cloud(packages={"npm": None}), description=None, name="F")

    config: Any = changed.config.to_dict()
    assert (changed.name, changed.description, changed.metadata) == ("F", None, {"c": "3"})
    assert config["networking"] == {**LIMITED, "allow_mcp_servers": True, "allow_package_managers": True}
    assert (config["packages"]["pip"], config["packages"]["npm"]) == (["attrs"], [])
    assert (await load(application, made.id)).mcp_servers
    opened = await sdk.beta.environments.update(made.id, config=cloud(networking={"type": "unrestricted"}))
    assert opened.config.to_dict()["networking"] == {"type": "unrestricted"}
    hosted = await sdk.beta.environments.update(made.id, config={"type": "self_hosted"})
    assert hosted.config.to_dict() == {"type": "self_hosted"}
    assert (await load(application, made.id)).self_hosted


@proves("v1.environments-packages")
async def test_packages_become_a_setup_that_names_them(sdk: AsyncAnthropic, application: Application) -> None:
    packages: Any = {"pip": ["attrs==24.1.0", "rich"], "npm": ["@scope/tool@2"], "go": ["example.com/x", "example.com/y@v1"]}
    made = await sdk.beta.environments.create(name="E", config=cloud(packages=packages))

    chosen = await load(application, made.id)
    assert set(chosen.packages) == {"python3", "npm", "go"}
    for shown in ("attrs==24.1.0", "rich", "@scope/tool@2", "example.com/x@latest", "example.com/y@v1"):
        assert shown in chosen.setup
    assert "The package rich of pip cannot be installed." in chosen.setup
    assert chosen.variables["PATH"].startswith("/environment/")
    assert chosen.variables["PYTHONPATH"] == "/environment/python"


@proves("v1.environments-packages")
async def test_packages_of_the_system_have_to_be_on_the_machine(
    sdk: AsyncAnthropic, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    status = tmp_path / "status"
    status.write_text(STATUS)
    monkeypatch.setattr(group, "APT_STATUS", status)

    made = await sdk.beta.environments.create(name="E", config=cloud(packages={"apt": ["git", "git=1:2.39"]}))

    assert made.config.type == "cloud"
    assert made.config.packages.apt == ["git", "git=1:2.39"]
    for missing in ("gone", "nothing", "git=3"):
        with pytest.raises(BadRequestError, match=missing.partition("=")[0]):
            await sdk.beta.environments.create(name="E", config=cloud(packages={"apt": [missing]}))


@proves("v1.environments-refused")
@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": "x" * 257}, "name"),
        ({"name": "E", "colour": "red"}, "colour"),
        ({"name": "E", "scope": "account"}, "scope"),
        ({"name": "E", "config": {"type": "remote"}}, "config"),
        ({"name": "E", "config": {"type": "self_hosted", "packages": {}}}, "packages"),
        ({"name": "E", "config": cloud(networking={"type": "host"})}, "config.networking"),
        ({"name": "E", "config": cloud(networking={"type": "limited", "allowed_hosts": ["https://x.org"]})}, "https://x.org"),
        ({"name": "E", "config": cloud(networking={"type": "limited", "allowed_hosts": ["127.0.0.1"]})}, "127.0.0.1"),
        ({"name": "E", "config": cloud(networking=LIMITED, packages={"pip": ["attrs"]})}, "allow_package_managers"),
        ({"name": "E", "config": cloud(packages={"conda": ["x"]})}, "conda"),
        ({"name": "E", "config": cloud(packages={"pip": ["--index-url=x"]})}, "--index-url"),
        ({"name": "E", "config": cloud(packages={"pip": ["a; rm -rf /"]})}, "rm -rf"),
        ({"name": "E", "config": cloud(packages={"pip": ["x"] * 101})}, "config.packages.pip"),
        ({"name": "E", "config": cloud(packages={"pip": ["x" * 190] * 100})}, "setup"),
    ],
)
async def test_what_cannot_be_had_is_refused_by_name(sdk: AsyncAnthropic, url: str, body: Any, named: str) -> None:
    answer = await send("POST", f"{url}/v1/environments", body)

    assert answer.status_code == 400
    assert named in answer.json()["error"]["message"]
    assert [found.id async for found in sdk.beta.environments.list()] == ["env_default"]


@proves("v1.environments-named")
async def test_environments_of_commands_and_files_can_be_read_but_those_of_other_projects_cannot(
    sdk: AsyncAnthropic, application: Application
) -> None:
    runtime = await application.runtime()
    await define(runtime.context, "shared", Environment(network="unrestricted"), by="person:anna")
    await define(runtime.context, "foreign", Environment(network="unrestricted"), by=FILE)
    directory = runtime.context.home.path / "environments"
    directory.mkdir()
    (directory / "mine.yaml").write_text("network: limited\nhosts: [api.example.com]\n")

    listed = [found.id async for found in sdk.beta.environments.list(limit=1)]

    assert listed == ["env_default", "env_mine", "env_shared"]
    found = await sdk.beta.environments.retrieve("env_mine")
    assert found.config.to_dict()["networking"] == {**LIMITED, "allow_mcp_servers": True, "allow_package_managers": False}
    for id_ in ("env_foreign", "env_missing", "env_", "default", "env_000000000000"):
        with pytest.raises(NotFoundError):
            await sdk.beta.environments.retrieve(id_)
    for change in (sdk.beta.environments.archive, sdk.beta.environments.delete):
        with pytest.raises(BadRequestError, match="built in, or defined by"):
            await change("env_default")


@proves("v1.environments-list")
async def test_environments_are_listed_newest_first_and_then_the_named_ones(sdk: AsyncAnthropic) -> None:
    made = [await sdk.beta.environments.create(name=f"E{number}") for number in range(3)]
    await sdk.beta.environments.archive(made[1].id)

    listed = [found.id async for found in sdk.beta.environments.list(limit=2)]
    everything = [found.id async for found in sdk.beta.environments.list(limit=2, include_archived=True)]

    assert listed == [made[2].id, made[0].id, "env_default"]
    assert everything == [made[2].id, made[1].id, made[0].id, "env_default"]


@proves("v1.environments-delete")
async def test_an_environment_in_use_is_not_deleted(sdk: AsyncAnthropic, application: Application, project: Path) -> None:
    runtime = await application.runtime()
    await sdk.beta.agents.create(name="A", model="scripted:test")
    (agent,) = [agent.name for agent in await list_agents(runtime.context, str(project))]
    made = await sdk.beta.environments.create(name="E", config=cloud(networking=LIMITED))
    session = await runtime.start_session(NewAgentSession(project=str(project), agent=agent, environment=made.id))

    with pytest.raises(BadRequestError, match="sesn_"):
        await sdk.beta.environments.delete(made.id)
    await runtime.archive_session(session, by="person:anna")
    deleted = await sdk.beta.environments.delete(made.id)

    assert (deleted.id, deleted.type) == (made.id, "environment_deleted")
    with pytest.raises(NotFoundError):
        await sdk.beta.environments.retrieve(made.id)


@proves("v1.environments-delete")
async def test_an_archived_environment_is_kept_as_it_is(sdk: AsyncAnthropic) -> None:
    made = await sdk.beta.environments.create(name="E")

    archived = await sdk.beta.environments.archive(made.id)

    assert archived.archived_at
    assert (await sdk.beta.environments.retrieve(made.id)).archived_at == archived.archived_at
    with pytest.raises(BadRequestError, match="archived"):
        await sdk.beta.environments.update(made.id, name="F")


@proves("v1.agents-relayed")
async def test_an_agent_that_found_the_key_defines_no_environment(sdk: AsyncAnthropic, url: str) -> None:
    made = await sdk.beta.environments.create(name="E")
    relayed, address = {**KEY, "Fidelio-Agent": "s_000000000000.1"}, f"{url}/v1/environments"

    for method, path in (("POST", ""), ("POST", f"/{made.id}"), ("POST", f"/{made.id}/archive"), ("DELETE", f"/{made.id}")):
        assert (await send(method, address + path, {"name": "Mine"}, key=relayed)).status_code == 403
    assert (await send("GET", f"{address}/{made.id}", key=relayed)).json()["name"] == "E"
