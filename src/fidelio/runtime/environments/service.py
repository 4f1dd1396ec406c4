"""Service of environments: what a session gets, from files, from the ledger, or built in."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec

from fidelio.errors import EnvironmentProblem
from fidelio.ledger.paging import all_pages
from fidelio.runtime.environments.preparation import find_prepared
from fidelio.runtime.environments.versions import (
    BUILT_IN_DEFAULT,
    DEFAULT,
    KIND,
    Environment,
    EnvironmentFile,
    EnvironmentVersion,
    define,
    list_environments,
    load_environment,
)
from fidelio.runtime.named_definitions import DefinitionFiles, list_documents
from fidelio.runtime.record import RuntimeRecords
from fidelio.runtime.stores import find_store
from fidelio.runtime.tools.model import RuntimeContext

# The authors of versions that are not a person's by name: those of files, and those of objects that programs create.
FILE, OBJECT = "file", "object"


class NamedEnvironment(msgspec.Struct, frozen=True):
    """An environment of a file or of a command, or the built-in default. `time` is 0 if no version of it was used yet."""

    name: str
    environment: Environment
    time: int


class Environments:
    """The environments of a home. Only a person defines them; the surfaces see to that."""

    def __init__(self, context: RuntimeContext) -> None:
        self._context = context
        self._files = DefinitionFiles(KIND, context.home)

    async def resolve(self, name: str | None, project: str) -> EnvironmentVersion:
        """The version that a new session gets: that of the nearest file, else the newest of the ledger, else built in.

        Raises `EnvironmentProblem` for an unknown name, and `UntrustedProject` if only a file that is not trusted has it.
        """
        wanted = name or DEFAULT
        if (file := await asyncio.to_thread(self._files.find, wanted, project)) and file.content is not None:
            return await define(self._context, wanted, file.content, by=FILE, source=file.hash)
        try:
            return await load_environment(self._context, wanted)
        except EnvironmentProblem:
            if untrusted := await asyncio.to_thread(self._files.describe_untrusted, wanted, project):
                raise untrusted from None
            raise

    async def define(self, name: str, environment: Environment, *, by: str) -> EnvironmentVersion:
        """Define an environment by command. A new content is a new version; sessions keep theirs."""
        return await define(self._context, name, environment, by=by)

    async def load(self, name: str, version: int | None = None) -> EnvironmentVersion:
        return await load_environment(self._context, name, version)

    async def list(self) -> tuple[EnvironmentVersion, ...]:
        return await list_environments(self._context)

    async def list_files(self, project: str) -> tuple[EnvironmentFile, ...]:
        """The files of environments that a project can use, and those that it cannot, with the reason."""
        return await asyncio.to_thread(self._files.list, project)

    async def list_named(self, project: str) -> tuple[NamedEnvironment, ...]:
        """What a project can use by name: the built-in default, those of commands, and its files. Nothing of other projects."""
        found = {DEFAULT: NamedEnvironment(DEFAULT, BUILT_IN_DEFAULT.environment, 0)}
        store = await find_store(self._context, "environments")
        async for document in list_documents(self._context, store):
            # A version of a file belongs to the project of the file, and that of an object to the object.
            if document.author not in (FILE, OBJECT):
                chosen = await load_environment(self._context, document.path)
                found[document.path] = NamedEnvironment(document.path, chosen.environment, document.time)
        for file in await self.list_files(project):
            if file.content is not None and not file.problem:
                known = found.get(file.name)
                found[file.name] = NamedEnvironment(file.name, file.content, known.time if known else 0)
        return tuple(found[name] for name in sorted(found))

    async def find_named(self, project: str, name: str) -> NamedEnvironment | None:
        """The environment of that name, if the project can use it."""
        return next((found for found in await self.list_named(project) if found.name == name), None)

    async def find_user(self, project: str, name: str) -> str:
        """A session of the project that still uses an environment; empty if there is none."""
        read = partial(self._context.ledger.sessions, kind="runtime", namespace=f"runtime:{project}")
        async for session in all_pages(read):
            record = RuntimeRecords().read(session.raw)
            if record.environment == name and not record.is_archived and record.status != "terminated":
                return session.id
        return ""

    async def prepare(self, name: str, version: int | None = None) -> EnvironmentVersion:
        """Run the setup of a version now, instead of with the first call of a session."""
        chosen = await self.load(name, version)
        await find_prepared(self._context, chosen)
        return chosen
