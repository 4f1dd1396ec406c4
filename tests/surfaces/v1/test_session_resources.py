"""Resources of sessions, by the official SDK: added, listed, read and removed, with the paths that they may have."""

from __future__ import annotations

from pathlib import Path

import pytest
from anthropic import APIStatusError, AsyncAnthropic, BadRequestError, NotFoundError

from fidelio.app.application import Application
from fidelio.runtime.agents.definition import AgentDefinition
from fidelio.runtime.agents.versions import define_agent
from fidelio.runtime.service import NewAgentSession
from fidelio.runtime.uploads.attaching import plan_file
from fidelio.runtime.uploads.files import StoredFiles
from fidelio.sandbox.model import UPLOADS
from tests.support import proves
from tests.surfaces.v1.conftest import TOKEN


async def begin(application: Application, project: str, **more: object) -> str:
    """A session of an agent; returns its id on the wire."""
    service = await application.runtime()
    await define_agent(service.context, project, "helper", AgentDefinition(model="scripted:test"), by="api")
    request = NewAgentSession(project=project, agent="helper", **more)  # type: ignore[arg-type]  # fields of the request
    return f"sesn_{(await service.start_session(request)).removeprefix('s_')}"


@pytest.fixture
async def session(application: Application, project: Path) -> str:
    return await begin(application, str(project))


@proves("v1-resources.life")
async def test_a_file_is_added_listed_read_and_removed(sdk: AsyncAnthropic, session: str) -> None:
    file = await sdk.beta.files.upload(file=("data.csv", b"a,b"))
    resources = sdk.beta.sessions.resources

    added = await resources.add(session, type="file", file_id=file.id, mount_path="/workspace/data.csv")
    other = await resources.add(session, type="file", file_id=file.id)
    retrieved = await resources.retrieve(added.id, session_id=session)
    listed = await resources.list(session)
    deleted = await resources.delete(added.id, session_id=session)
    after = await resources.list(session)

    assert (added.file_id, added.mount_path) == (file.id, "/workspace/data.csv")
    assert other.mount_path == f"{UPLOADS}/{file.id}"
    assert retrieved == added
    assert [item.id for item in listed.data] == [added.id, other.id]  # type: ignore[union-attr]  # files have ids
    assert (deleted.id, deleted.type) == (added.id, "session_resource_deleted")
    assert [item.id for item in after.data] == [other.id]  # type: ignore[union-attr]  # as above
    with pytest.raises(NotFoundError):
        await resources.retrieve(added.id, session_id=session)


@proves("v1-resources.life")
async def test_resources_are_listed_in_pages(sdk: AsyncAnthropic, session: str) -> None:
    file = await sdk.beta.files.upload(file=("a", b"x"))
    added = [
        (await sdk.beta.sessions.resources.add(session, type="file", file_id=file.id, mount_path=f"/workspace/{number}")).id
        for number in range(5)
    ]

    listed = [item.id async for item in sdk.beta.sessions.resources.list(session, limit=2)]  # type: ignore[union-attr]  # files

    assert listed == added


@proves("v1-resources.begin")
async def test_a_session_begins_with_resources(sdk: AsyncAnthropic, application: Application, project: Path) -> None:
    context = (await application.runtime()).context
    file = await StoredFiles(context, str(project)).store("a.txt", "", [b"text"], by="api")
    session = await begin(application, str(project), resources=(plan_file(file, f"{UPLOADS}/a.txt"),))
    await sdk.beta.files.delete(f"file_{file.id.removeprefix('s_')}")

    (resource,) = (await sdk.beta.sessions.resources.list(session)).data

    assert resource.type == "file"
    assert resource.mount_path == f"{UPLOADS}/a.txt"
    assert await context.ledger.blob(file.content.chunks[0]) == b"text"


@proves("v1-resources.refused")
async def test_what_is_not_offered_is_refused_with_what_to_do_instead(sdk: AsyncAnthropic, session: str) -> None:
    file = await sdk.beta.files.upload(file=("a", b"x"))
    added = await sdk.beta.sessions.resources.add(session, type="file", file_id=file.id)

    with pytest.raises(BadRequestError, match="--mount"):
        await sdk.beta.sessions.resources.add(
            session,
            type="github_repository",  # type: ignore[arg-type]  # what the server refuses
            file_id="",
            extra_body={"url": "https://github.com/example/example", "authorization_token": "secret"},
        )
    with pytest.raises(BadRequestError, match="authorization_token"):
        await sdk.beta.sessions.resources.update(added.id, session_id=session, authorization_token="new")
    with pytest.raises(BadRequestError, match="mount_path"):
        await sdk.beta.sessions.resources.add(session, type="file", file_id=file.id, mount_path="/etc/passwd")
    with pytest.raises(BadRequestError, match="surprise"):
        await sdk.beta.sessions.resources.add(session, type="file", file_id=file.id, extra_body={"surprise": 1})


@proves("v1-resources.project")
async def test_sessions_and_files_of_another_project_are_unknown(
    sdk: AsyncAnthropic, application: Application, session: str, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    foreign = await begin(application, str(elsewhere))
    context = (await application.runtime()).context
    theirs = await StoredFiles(context, str(elsewhere)).store("a", "", [b"x"], by="api")
    own = await sdk.beta.files.upload(file=("a", b"x"))

    with pytest.raises(NotFoundError):
        await sdk.beta.sessions.resources.list(foreign)
    with pytest.raises(NotFoundError):
        await sdk.beta.sessions.resources.add(foreign, type="file", file_id=own.id)
    with pytest.raises(NotFoundError):
        await sdk.beta.sessions.resources.add(session, type="file", file_id=f"file_{theirs.id.removeprefix('s_')}")
    with pytest.raises(NotFoundError):
        await sdk.beta.sessions.resources.list(own.id.replace("file_", "sesn_"))


@proves("v1-files.agents")
async def test_an_agent_cannot_change_what_a_session_has(sdk: AsyncAnthropic, url: str, session: str) -> None:
    file = await sdk.beta.files.upload(file=("a", b"x"))
    header = {"Fidelio-Agent": "s_0123456789ab.1"}

    async with AsyncAnthropic(base_url=url, api_key=TOKEN, max_retries=0, default_headers=header) as agent:
        with pytest.raises(APIStatusError) as raised:
            await agent.beta.sessions.resources.add(session, type="file", file_id=file.id)

    assert raised.value.status_code == 403
