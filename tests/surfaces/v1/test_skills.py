"""Skills by the official SDK: uploaded, versioned, downloaded, deleted, and used by an agent."""

from __future__ import annotations

import asyncio
import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from anthropic import APIStatusError, AsyncAnthropic, BadRequestError, ConflictError, NotFoundError

from fidelio.app.application import Application
from fidelio.runtime.agents.entries import load_entry
from fidelio.runtime.calls import Finished
from fidelio.runtime.service import NewAgentSession
from fidelio.runtime.skills.packages import check_package
from fidelio.runtime.skills.uploaded import UploadedSkills
from fidelio.runtime.specs import build_spec
from fidelio.runtime.tools.definitions import RUNTIME_TOOL_NAMES
from fidelio.runtime.wakes.preparation import prepare
from tests.support import proves
from tests.surfaces.v1.conftest import TOKEN

Files = list[tuple[str, bytes]]


def skill_files(name: str = "read-invoices", text: str = "Look at the total first.", folder: str = "folder") -> Files:
    front = f"---\nname: {name}\ndescription: Reads invoices of suppliers.\n---\n{text}\n"
    return [(f"{folder}/SKILL.md", front.encode()), (f"{folder}/scripts/sum.py", b"print(1)"), (f"{folder}/empty", b"")]


@proves("v1-skills.life")
async def test_a_skill_is_created_listed_and_deleted(sdk: AsyncAnthropic) -> None:
    first = await sdk.beta.skills.create(files=skill_files(), display_name="Invoices")
    second = await sdk.beta.skills.create(files=skill_files("other"))
    third = await sdk.beta.skills.create(files=skill_files("third"))

    listed = [skill.id async for skill in sdk.beta.skills.list(limit=2)]
    deleted = await sdk.beta.skills.delete(first.id)

    assert (first.display_name, second.display_name, first.source.type) == ("Invoices", "other", "custom")
    assert listed == [third.id, second.id, first.id]
    assert (deleted.id, deleted.type) == (first.id, "skill_deleted")
    with pytest.raises(NotFoundError):
        await sdk.beta.skills.retrieve(first.id)
    with pytest.raises(NotFoundError):
        await sdk.beta.skills.versions.list(first.id)
    assert [skill.id for skill in (await sdk.beta.skills.list(source="anthropic")).data] == []
    with pytest.raises(BadRequestError, match="source"):
        await sdk.beta.skills.list(source="nonsense")


@proves("v1-skills.versions")
async def test_a_skill_has_versions_of_one_name(sdk: AsyncAnthropic) -> None:
    skill = await sdk.beta.skills.create(files=skill_files())
    versions = sdk.beta.skills.versions

    added = await versions.create(skill.id, files=skill_files(text="Second."))
    retrieved = await versions.retrieve(added.id, skill_id=skill.id)
    listed = [version.id async for version in versions.list(skill.id, limit=1)]

    assert retrieved == added
    assert (added.name, added.description, added.skill_id) == ("read-invoices", "Reads invoices of suppliers.", skill.id)
    assert listed == [added.id, skill.latest_version_id]
    assert (await sdk.beta.skills.retrieve(skill.id)).latest_version_id == added.id
    with pytest.raises(BadRequestError, match="read-invoices"):
        await versions.create(skill.id, files=skill_files("another-name"))
    deleted = await versions.delete(added.id, skill_id=skill.id)
    assert (deleted.id, deleted.type) == (added.id, "skill_version_deleted")
    assert (await sdk.beta.skills.retrieve(skill.id)).latest_version_id == skill.latest_version_id
    with pytest.raises(BadRequestError, match="only version"):
        await versions.delete(skill.latest_version_id, skill_id=skill.id)


@proves("v1-skills.download")
async def test_a_downloaded_version_has_every_file_and_can_be_uploaded_again(sdk: AsyncAnthropic) -> None:
    skill = await sdk.beta.skills.create(files=skill_files())

    archive = await (await sdk.beta.skills.versions.download(skill.latest_version_id, skill_id=skill.id)).read()
    again = await sdk.beta.skills.create(files=[("read-invoices.zip", archive)])

    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        assert {name: opened.read(name) for name in opened.namelist()} == {
            path.replace("folder", "read-invoices"): content for path, content in skill_files()
        }
    copy = await sdk.beta.skills.versions.retrieve(again.latest_version_id, skill_id=again.id)
    assert copy.name == "read-invoices"


@proves("v1-skills.refused")
@pytest.mark.parametrize(
    ("files", "words"),
    [
        ([("a/../../SKILL.md", b"x")], "plain relative path"),
        ([("/etc/SKILL.md", b"x")], "plain relative path"),
        ([("a/SKILL.md", b"no front matter")], "front matter"),
        ([("a/other.md", b"x")], "SKILL.md"),
        ([(f"a/{number}", b"") for number in range(250)], "Too many files"),
    ],
)
async def test_a_wrong_skill_is_refused_with_the_reason(sdk: AsyncAnthropic, files: Files, words: str) -> None:
    with pytest.raises(BadRequestError, match=words):
        await sdk.beta.skills.create(files=files)
    assert (await sdk.beta.skills.list()).data == []


@proves("v1-skills.refused")
async def test_a_skill_beyond_the_limit_is_refused_with_the_limit(sdk: AsyncAnthropic) -> None:
    with pytest.raises(APIStatusError) as raised:
        await sdk.beta.skills.create(files=[*skill_files(), ("folder/large", b"x" * (10 << 20))])

    assert raised.value.status_code == 413
    assert str(8 << 20) in str(raised.value)


@proves("v1-skills.idempotency")
async def test_a_repeated_creation_with_the_same_key_makes_one_skill(sdk: AsyncAnthropic) -> None:
    headers = {"Idempotency-Key": "skill-1"}
    made = await asyncio.gather(*(sdk.beta.skills.create(files=skill_files(), extra_headers=headers) for _ in range(3)))

    assert len({(skill.id, skill.latest_version_id) for skill in made}) == 1
    with pytest.raises(ConflictError):
        await sdk.beta.skills.create(files=skill_files(text="Different."), extra_headers=headers)


@proves("v1-skills.project")
async def test_a_skill_of_another_project_is_unknown(sdk: AsyncAnthropic, application: Application) -> None:
    skills = UploadedSkills((await application.runtime()).context, "/elsewhere")
    theirs = await skills.create(check_package(skill_files("theirs")), "", by="api")
    own = await sdk.beta.skills.create(files=skill_files())
    version = (await skills.newest(theirs.id)).id.replace("s_", "skillver_")

    with pytest.raises(NotFoundError):
        await sdk.beta.skills.retrieve(theirs.id.replace("s_", "skill_"))
    with pytest.raises(NotFoundError):
        await sdk.beta.skills.versions.retrieve(version, skill_id=own.id)
    assert [skill.id async for skill in sdk.beta.skills.list()] == [own.id]


@proves("v1-skills.agents")
async def test_an_agent_may_neither_upload_nor_delete_skills(sdk: AsyncAnthropic, url: str) -> None:
    skill = await sdk.beta.skills.create(files=skill_files())
    header = {"Fidelio-Agent": "s_0123456789ab.1"}

    async with AsyncAnthropic(base_url=url, api_key=TOKEN, max_retries=0, default_headers=header) as agent:
        calls: list[Callable[[], Any]] = [
            lambda: agent.beta.skills.create(files=skill_files()),
            lambda: agent.beta.skills.delete(skill.id),
            lambda: agent.beta.skills.versions.create(skill.id, files=skill_files()),
            lambda: agent.beta.skills.versions.delete(skill.latest_version_id, skill_id=skill.id),
        ]
        for call in calls:
            with pytest.raises(APIStatusError) as raised:
                await call()
            assert raised.value.status_code == 403


async def make_agent(sdk: AsyncAnthropic, *skills: dict[str, Any]) -> Any:
    chosen: Any = list(skills)
    return await sdk.beta.agents.create(name="Helper", model="scripted:test", skills=chosen)


@proves("v1-skills.resolve")
async def test_the_skills_of_an_agent_are_pinned_to_versions(sdk: AsyncAnthropic) -> None:
    skill = await sdk.beta.skills.create(files=skill_files())
    newer = await sdk.beta.skills.versions.create(skill.id, files=skill_files(text="Second."))
    same_name = await sdk.beta.skills.create(files=skill_files())
    custom = {"type": "custom", "skill_id": skill.id}

    for version, expected in ((None, newer.id), ("latest", newer.id), (skill.latest_version_id, skill.latest_version_id)):
        agent = await make_agent(sdk, {**custom, "version": version})
        assert [(each.type, each.skill_id, each.version) for each in agent.skills] == [("custom", skill.id, expected)]
    for raw, words in (
        ([{"type": "anthropic", "skill_id": "xlsx"}], "vendor"),
        ([{"type": "custom", "skill_id": "skill_000000000000"}], "not found"),
        ([{**custom, "version": "skillver_000000000000"}], "not found"),
        ([custom, {"type": "custom", "skill_id": same_name.id}], "two of them"),
        ([{"type": "custom"}], "skill_id"),
    ):
        with pytest.raises(APIStatusError, match=words):
            await make_agent(sdk, *raw)


@proves("v1-skills.used")
async def test_an_agent_finds_reads_and_has_the_files_of_its_skills(
    sdk: AsyncAnthropic, application: Application, project: Path
) -> None:
    skill = await sdk.beta.skills.create(files=skill_files())
    agent = await make_agent(sdk, {"type": "custom", "skill_id": skill.id})
    service, session = await begin(application, project, agent.id)

    listed = await service.call(session, "skills_list", {}, tools=RUNTIME_TOOL_NAMES)
    found = await service.call(session, "skills_search", {"query": "invoices"}, tools=RUNTIME_TOOL_NAMES)
    read = await service.call(session, "skills_read", {"name": "read-invoices"}, tools=RUNTIME_TOOL_NAMES)
    loaded = await service.load(session)
    spec = await build_spec(service.context, loaded)

    assert isinstance(listed, Finished)
    assert isinstance(found, Finished)
    assert isinstance(read, Finished)
    assert [each["name"] for each in listed.output["skills"]] == ["read-invoices"]
    assert [each["name"] for each in found.output["hits"]] == ["read-invoices"]
    assert "Look at the total first." in read.output["content"]
    mount = next(mount for mount in spec.mounts if mount.kind == "skills")
    assert (mount.path, mount.access) == ("/mnt/skills/read-invoices", "read_only")
    assert await asyncio.to_thread(Path(mount.source, "scripts", "sum.py").read_bytes) == b"print(1)"
    assert "/mnt/skills/read-invoices" in (await prepare(service.context, loaded)).system


@proves("v1-skills.used")
async def test_a_deleted_skill_is_reported_and_ends_nothing(
    sdk: AsyncAnthropic, application: Application, project: Path
) -> None:
    skill = await sdk.beta.skills.create(files=skill_files())
    agent = await make_agent(sdk, {"type": "custom", "skill_id": skill.id})
    service, session = await begin(application, project, agent.id)
    await build_spec(service.context, await service.load(session))
    await sdk.beta.skills.delete(skill.id)

    listed = await service.call(session, "skills_list", {}, tools=RUNTIME_TOOL_NAMES)
    spec = await build_spec(service.context, await service.load(session))

    assert isinstance(listed, Finished)
    assert listed.output["skills"] == []
    assert "deleted" in listed.output["problems"][0]["problem"]
    assert [mount for mount in spec.mounts if mount.kind == "skills"] == []
    area = service.context.home.path / "sandboxes" / "skills"
    assert list(area.iterdir()) == []


async def begin(application: Application, project: Path, agent: str) -> tuple[Any, str]:
    service = await application.runtime()
    entry = await load_entry(service.context, str(project), f"s_{agent.removeprefix('agent_')}")
    return service, await service.start_session(NewAgentSession(project=str(project), agent=entry.name))
