"""Service of environments: what a session gets, from files, from the ledger, or built in."""

from __future__ import annotations

import asyncio

from fidelio.errors import EnvironmentProblem
from fidelio.runtime.environments.preparation import find_prepared
from fidelio.runtime.environments.versions import (
    DEFAULT,
    KIND,
    Environment,
    EnvironmentFile,
    EnvironmentVersion,
    define,
    list_environments,
    load_environment,
)
from fidelio.runtime.named_definitions import DefinitionFiles
from fidelio.runtime.tools.model import RuntimeContext


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
            return await define(self._context, wanted, file.content, by="file", source=file.hash)
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

    async def prepare(self, name: str, version: int | None = None) -> EnvironmentVersion:
        """Run the setup of a version now, instead of with the first call of a session."""
        chosen = await self.load(name, version)
        await find_prepared(self._context, chosen)
        return chosen
