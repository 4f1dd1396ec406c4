"""Skills of the API: uploaded directories with a `SKILL.md`, and their versions."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.responses import Response

from fidelio.clock import format_iso
from fidelio.errors import SessionNotFound
from fidelio.runtime.skills.packages import MAX_FILES, MAX_TOTAL, SkillPackage, check_package, pack
from fidelio.runtime.skills.uploaded import StoredSkill, StoredVersion, UploadedSkills
from fidelio.surfaces.http.v1.endpoint import API_ACTOR, ApiRequest, ApiRoute
from fidelio.surfaces.http.v1.errors import ApiProblem, not_found
from fidelio.surfaces.http.v1.ids import to_session, to_wire
from fidelio.surfaces.http.v1.multipart import Form, read_form

MAX_LISTED = 1_000
LATEST = "latest"
_FIELDS = ("files", "files[]")


async def find_skill(request: ApiRequest, skill: str, version: str | None) -> StoredVersion:
    """The version of a skill that an agent names; the newest without a version. Raises 404."""
    return await _find_version(await _open(request), skill, version or LATEST)


async def _open(request: ApiRequest) -> UploadedSkills:
    return UploadedSkills((await request.services.runtime()).context, request.services.project)


async def _find(skills: UploadedSkills, id_: str) -> StoredSkill:
    try:
        return await skills.load(to_session("skill", id_))
    except SessionNotFound:
        raise not_found("Skill", id_) from None


async def _newest(skills: UploadedSkills, id_: str) -> StoredVersion:
    try:
        return await skills.newest((await _find(skills, id_)).id)
    except SessionNotFound:
        raise not_found("Skill", id_) from None


async def _find_version(skills: UploadedSkills, skill: str, id_: str) -> StoredVersion:
    found = await _find(skills, skill)
    if id_ == LATEST:
        return await _newest(skills, skill)
    try:
        return await skills.load_version(found.id, to_session("skillver", id_))
    except SessionNotFound:
        raise not_found("Skill version", id_) from None


async def _create(request: ApiRequest) -> dict[str, Any]:
    await request.require_key_holder()
    async with request.services.uploads, _read(request, "display_name") as form:
        package = await _check(form)
    skills = await _open(request)
    skill = await skills.create(package, form.fields.get("display_name", ""), by=API_ACTOR, key=request.idempotency_key)
    return await _render(skills, skill)


async def _list(request: ApiRequest) -> dict[str, Any]:
    source = request.query("source")
    if source not in ("", "custom", "anthropic"):
        raise ApiProblem(f"source: {source!r:.60} is neither custom nor anthropic.")
    if source == "anthropic":
        # There are none here.
        return request.page("skills:anthropic", (), None)
    skills = await _open(request)
    page = await skills.list(cursor=request.cursor("skills"), limit=request.limit(most=MAX_LISTED))
    rendered = [await _render_or_none(skills, skill) for skill in page.items]
    return request.page("skills", [skill for skill in rendered if skill is not None], page.next)


async def _retrieve(request: ApiRequest) -> dict[str, Any]:
    skills = await _open(request)
    return await _render(skills, await _find(skills, request.path("skill_id")))


async def _delete(request: ApiRequest) -> dict[str, Any]:
    await request.require_key_holder()
    skills = await _open(request)
    skill = await _find(skills, request.path("skill_id"))
    await skills.delete(skill.id, by=API_ACTOR)
    return {"id": to_wire("skill", skill.id), "type": "skill_deleted"}


async def _create_version(request: ApiRequest) -> dict[str, Any]:
    await request.require_key_holder()
    skills = await _open(request)
    skill = await _find(skills, request.path("skill_id"))
    async with request.services.uploads, _read(request) as form:
        package = await _check(form)
    version = await skills.add_version(skill.id, package, by=API_ACTOR, key=request.idempotency_key)
    return _render_version(version)


async def _list_versions(request: ApiRequest) -> dict[str, Any]:
    skills = await _open(request)
    skill = await _find(skills, request.path("skill_id"))
    list_ = f"skill_versions:{skill.id}"
    page = await skills.list_versions(skill.id, cursor=request.cursor(list_), limit=request.limit(most=MAX_LISTED))
    return request.page(list_, [_render_version(version) for version in page.items], page.next)


async def _retrieve_version(request: ApiRequest) -> dict[str, Any]:
    return _render_version(await _find_version(await _open(request), request.path("skill_id"), request.path("version")))


async def _delete_version(request: ApiRequest) -> dict[str, Any]:
    await request.require_key_holder()
    skills = await _open(request)
    version = await _find_version(skills, request.path("skill_id"), request.path("version"))
    await skills.delete_version(version.content.skill, version.id, by=API_ACTOR)
    return {"id": to_wire("skillver", version.id), "type": "skill_version_deleted"}


async def _download(request: ApiRequest) -> Response:
    skills = await _open(request)
    version = await _find_version(skills, request.path("skill_id"), request.path("version"))
    files, name = await skills.read_files(version), version.content.name
    archive = await asyncio.to_thread(pack, name, files)
    headers = {"content-disposition": f'attachment; filename="{name}.zip"', "x-content-type-options": "nosniff"}
    return Response(archive, media_type="application/zip", headers=headers)


def _read(request: ApiRequest, *fields: str) -> Any:
    return read_form(request, limit=MAX_TOTAL, max_files=MAX_FILES + 1, fields=fields)


async def _check(form: Form) -> SkillPackage:
    if unknown := next((part.field for part in form.files if part.field not in _FIELDS), None):
        raise ApiProblem(f"{unknown[:60]}: this part is unknown. Name each file files[].")
    uploaded = [(part.filename, b"".join(part.read())) for part in form.files]
    # In a thread: an archive is unpacked, and a text is parsed.
    return await asyncio.to_thread(check_package, uploaded)


async def _render(skills: UploadedSkills, skill: StoredSkill) -> dict[str, Any]:
    rendered = await _render_or_none(skills, skill)
    if rendered is None:
        raise not_found("Skill", to_wire("skill", skill.id))
    return rendered


async def _render_or_none(skills: UploadedSkills, skill: StoredSkill) -> dict[str, Any] | None:
    """The skill; None if its upload was cut off before its first version, or if it was deleted meanwhile."""
    try:
        newest = await skills.newest(skill.id)
    except SessionNotFound:
        return None
    return {
        "id": to_wire("skill", skill.id),
        "type": "skill",
        "display_name": skill.content.display_name,
        "latest_version_id": to_wire("skillver", newest.id),
        "source": {"type": "custom"},
        "created_at": format_iso(skill.created_at),
        "updated_at": format_iso(max(skill.updated_at, newest.created_at)),
    }


def _render_version(version: StoredVersion) -> dict[str, Any]:
    content = version.content
    return {
        "id": to_wire("skillver", version.id),
        "type": "skill_version",
        "skill_id": to_wire("skill", content.skill),
        "name": content.name,
        "description": content.description,
        "created_at": format_iso(version.created_at),
    }


ROUTES: tuple[ApiRoute, ...] = (
    ApiRoute("/v1/skills", {"POST": _create, "GET": _list}),
    ApiRoute("/v1/skills/{skill_id}", {"GET": _retrieve, "DELETE": _delete}),
    ApiRoute("/v1/skills/{skill_id}/versions", {"POST": _create_version, "GET": _list_versions}),
    ApiRoute("/v1/skills/{skill_id}/versions/{version}", {"GET": _retrieve_version, "DELETE": _delete_version}),
    ApiRoute("/v1/skills/{skill_id}/versions/{version}/content", {"GET": _download}),
)
