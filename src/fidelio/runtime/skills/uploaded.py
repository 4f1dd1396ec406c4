"""Skills that programs upload: objects with immutable versions, whose files are shown in a directory of the host.

The directory of a version is written once and shared by all sessions that have the version. It is a copy: the ledger has the
files, and a directory that is missing is written again.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import msgspec

from fidelio.errors import SessionNotFound, UsageProblem
from fidelio.ids import new_id
from fidelio.ledger.encoding import hash_blob
from fidelio.ledger.model import Page
from fidelio.runtime.agents.definition import SkillReference
from fidelio.runtime.objects import ObjectPlan, Objects, StoredObject
from fidelio.runtime.skills.packages import SkillPackage
from fidelio.runtime.tools.model import RuntimeContext
from fidelio.runtime.uploads.files import plan_blobs
from fidelio.sandbox.directory import remove_directory
from fidelio.sandbox.model import SKILLS, Mount

# Below `<home>/sandboxes`: what several sandboxes show.
AREA = "skills"
MAX_DISPLAY = 255


class SkillContent(msgspec.Struct, frozen=True):
    """What is known about a skill. Its name never changes."""

    name: str
    display_name: str


class SkillVersion(msgspec.Struct, frozen=True):
    """The content of a version: its files by path, each with the digest of its blob. `directory` is where they are shown."""

    skill: str
    name: str
    description: str
    files: dict[str, str]
    directory: str


StoredSkill = StoredObject[SkillContent]
StoredVersion = StoredObject[SkillVersion]


class UploadedSkills:
    """The skills of a project."""

    def __init__(self, context: RuntimeContext, project: str) -> None:
        self._context, self._project = context, project
        self._skills = Objects(context, project, "skill", SkillContent)

    async def create(self, package: SkillPackage, display_name: str, *, by: str, key: str = "") -> StoredSkill:
        """Store a skill with its first version."""
        if len(display_name) > MAX_DISPLAY or not (display_name or package.name).isprintable():
            raise UsageProblem(f"display_name: use one line of up to {MAX_DISPLAY} characters.")
        content = SkillContent(package.name, display_name.strip() or package.name)
        skill = await self._skills.create(content, by=by, key=key)
        await self._store_version(skill, package, by, key or "first")
        return skill

    async def load(self, skill: str) -> StoredSkill:
        """The skill with this id. Raises `SessionNotFound`."""
        return await self._skills.load(skill)

    async def list(self, *, cursor: str | None = None, limit: int = 50) -> Page[StoredSkill]:
        return await self._skills.list(cursor=cursor, limit=limit)

    async def delete(self, skill: str, *, by: str) -> None:
        """Erase a skill with all its versions."""
        await self.load(skill)
        while versions := (await self.list_versions(skill)).items:
            for version in versions:
                await self._erase_version(version, by)
        await self._skills.delete(skill, by=by)

    async def add_version(self, skill: str, package: SkillPackage, *, by: str, key: str = "") -> StoredVersion:
        """Store a new version. Raises `UsageProblem` if it has another name than the skill."""
        found = await self.load(skill)
        if package.name != found.content.name:
            raise UsageProblem(
                f"files: the skill is called {found.content.name}, and these files {package.name}.",
                remedy="Keep the name in SKILL.md, or create another skill.",
            )
        return await self._store_version(found, package, by, key)

    async def list_versions(self, skill: str, *, cursor: str | None = None, limit: int = 50) -> Page[StoredVersion]:
        """A page of the versions of a skill, newest first."""
        return await self._versions(skill).list(cursor=cursor, limit=limit)

    async def newest(self, skill: str) -> StoredVersion:
        """The newest version of a skill. Raises `SessionNotFound`."""
        await self.load(skill)
        versions = (await self.list_versions(skill, limit=1)).items
        if not versions:
            raise SessionNotFound(f"The skill {skill} has no version.", remedy="Delete it, and create it again.")
        return versions[0]

    async def load_version(self, skill: str, version: str) -> StoredVersion:
        """A version of a skill. Raises `SessionNotFound`."""
        await self.load(skill)
        return await self._versions(skill).load(version)

    async def delete_version(self, skill: str, version: str, *, by: str) -> None:
        """Erase a version. The last version is erased only with its skill."""
        found = await self.load_version(skill, version)
        if len((await self.list_versions(skill, limit=2)).items) == 1:
            raise UsageProblem("This is the only version of the skill.", remedy="Delete the skill.")
        await self._erase_version(found, by)

    async def read_files(self, version: StoredVersion) -> dict[str, bytes]:
        """The files of a version by path. Raises `SessionNotFound` if a file was erased meanwhile."""
        return await _read_files(self._context, version.content.files)

    async def _store_version(self, skill: StoredSkill, package: SkillPackage, by: str, key: str) -> StoredVersion:
        files = {path: hash_blob(content) for path, content in sorted(package.files.items())}
        # Computed, so that a repeated request describes the same version.
        directory = hash_blob(f"{skill.id} {key or new_id('')} {sorted(files.items())}".encode())[:16]
        content = SkillVersion(skill.id, package.name, package.description, files, directory)
        plan = ObjectPlan(plan_blobs(tuple(files.values()), by), tuple(package.files.values()))
        return await self._versions(skill.id).create(content, by=by, key=key, plan=plan)

    async def _erase_version(self, version: StoredVersion, by: str) -> None:
        await self._versions(version.content.skill).delete(version.id, by=by)
        await asyncio.to_thread(remove_directory, find_directory(self._context, version.content.directory))

    def _versions(self, skill: str) -> Objects[SkillVersion]:
        return Objects(self._context, self._project, "skill_version", SkillVersion, parent=skill)


class ShownSkill(msgspec.Struct, frozen=True):
    """A version of a skill whose files are in a directory. `directory` contains that of the skill, which has its name."""

    name: str
    directory: Path
    origin: SkillReference

    def mount(self) -> Mount:
        return Mount(f"{SKILLS}/{self.name}", f"{self.directory}/{self.name}", "read_only", "skills")


async def show_skills(
    context: RuntimeContext, project: str, chosen: tuple[SkillReference, ...]
) -> tuple[tuple[ShownSkill, ...], tuple[SkillReference, ...]]:
    """The skills with their files on the host, and those whose version was deleted."""
    skills, placed, missing = UploadedSkills(context, project), list[ShownSkill](), list[SkillReference]()
    for each in chosen:
        try:
            version = await skills.load_version(each.id, each.version)
            placed.append(ShownSkill(version.content.name, await _show(context, version.content), each))
        except SessionNotFound:
            missing.append(each)
    return tuple(placed), tuple(missing)


def find_directory(context: RuntimeContext, name: str) -> Path:
    return context.home.path / "sandboxes" / AREA / name


async def _show(context: RuntimeContext, version: SkillVersion) -> Path:
    directory = find_directory(context, version.directory)
    if not await asyncio.to_thread(directory.exists):
        files = await _read_files(context, version.files)
        await asyncio.to_thread(_write, directory, version.name, files)
    return directory


async def _read_files(context: RuntimeContext, files: Mapping[str, str]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for path, digest in files.items():
        content = await context.ledger.blob(digest)
        if content is None:
            raise SessionNotFound("The files of the skill were deleted.")
        found[path] = content
    return found


def _write(directory: Path, name: str, files: Mapping[str, bytes]) -> None:
    """Write all files under another name and rename the directory, so that nobody sees a part of them."""
    directory.parents[1].mkdir(mode=0o700, exist_ok=True)
    directory.parent.mkdir(mode=0o700, exist_ok=True)
    draft = directory.with_name(f".{directory.name}.{secrets.token_hex(4)}")
    for path, content in files.items():
        target = draft / name / path
        for parent in reversed(PurePosixPath(name, path).parents):
            draft.joinpath(parent).mkdir(mode=0o755, exist_ok=True)
            # The users of several sandboxes read them, whatever the umask says.
            draft.joinpath(parent).chmod(0o755)
        target.write_bytes(content)
        target.chmod(0o644)
    try:
        draft.rename(directory)
    except OSError:
        # Another process was faster: a directory with files is not replaced.
        remove_directory(draft)
        if not directory.exists():
            raise
