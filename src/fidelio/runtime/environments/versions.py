"""Environments: named, versioned configurations of sandboxes.

An environment says which network, which programs, which further paths of the machine, which limits and variables the sandboxes
of a session have. Each different content of a name is a version in the ledger, and a session keeps the version it began with.
`default` is built in: no network, nothing else of the machine. What a definition allows is decided by a person: a file of a
project, `.fidelio/environments/NAME.yaml`, is used only as a person has trusted it (`fidelio.runtime.named_definitions`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from fidelio.errors import Command, EnvironmentProblem, Hint
from fidelio.runtime import events as e
from fidelio.runtime.named_definitions import DefinitionFile, DefinitionKind, VersionedDocument, list_documents, put_version
from fidelio.runtime.stores import Store, describe, find_store, open_store
from fidelio.runtime.tools.model import RuntimeContext
from fidelio.sandbox.model import Network, SandboxLimits

DEFAULT = "default"
# The version of the built-in environment; those of the ledger count from 1.
BUILT_IN = 0
NAME_RULE = "Use 1 to 60 letters, digits, dashes and underscores."
_NAME = re.compile(r"[A-Za-z0-9_-]{1,60}")
_HOST = re.compile(r"(\*\.)?([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z][a-z0-9-]{0,61}[a-z0-9]", re.IGNORECASE)
_PROGRAM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
# They decide what the loader and the shell execute before a command, or belong to Fidelio.
_REFUSED_VARIABLES = re.compile(r"(LD_.*|BASH_ENV|ENV|IFS|PS4|PROMPT_COMMAND|SHELLOPTS|BASHOPTS|FIDELIO_.*)")

Text = Annotated[str, Meta(min_length=1, max_length=4_096)]
Items = Annotated[tuple[Text, ...], Meta(max_length=100)]


class EnvironmentLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Limits of a session in this environment. They can only be stricter than those of the machine for processes."""

    processes: Annotated[int, Meta(ge=8, le=512)] = SandboxLimits().processes
    memory_bytes: Annotated[int, Meta(ge=64 << 20, le=1 << 50)] = SandboxLimits().memory_bytes
    file_bytes: Annotated[int, Meta(ge=1 << 20, le=1 << 50)] = SandboxLimits().file_bytes
    disk_bytes: Annotated[int, Meta(ge=1 << 20, le=1 << 50)] = SandboxLimits().disk_bytes
    open_files: Annotated[int, Meta(ge=64, le=65_536)] = SandboxLimits().open_files


class Environment(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The content of an environment. `variables` are not secret: they are in the ledger as they are."""

    network: Network = "none"
    hosts: Items = ()
    packages: Items = ()
    read_only: Items = ()
    setup: Annotated[str, Meta(max_length=20_000)] = ""
    limits: EnvironmentLimits = EnvironmentLimits()
    variables: Annotated[dict[str, Annotated[str, Meta(max_length=32_768)]], Meta(max_length=200)] = {}
    description: Annotated[str, Meta(max_length=2_048)] = ""
    # Whether MCP servers of agents may be used: those that are reached over the network.
    mcp_servers: bool = True
    # Tool calls are carried out by a worker of the user's, and not in a sandbox of ours.
    self_hosted: bool = False

    @property
    def needs_preparation(self) -> bool:
        return bool(self.setup or self.packages)


class EnvironmentVersion(msgspec.Struct, frozen=True):
    """A version of an environment that sessions can use."""

    name: str
    version: int
    environment: Environment

    @property
    def label(self) -> str:
        return f"{self.name} (built in)" if self.version == BUILT_IN else f"{self.name}, version {self.version}"


EnvironmentFile: TypeAlias = DefinitionFile[Environment]
BUILT_IN_DEFAULT = EnvironmentVersion(DEFAULT, BUILT_IN, Environment(description="No network, nothing but /usr."))


def parse_environment(data: Any, where: str) -> Environment:
    """Check the content of an environment. Raises `EnvironmentProblem`, which names the key."""
    try:
        environment = msgspec.convert(data, Environment)
    except msgspec.ValidationError as error:
        remedy = f"The keys are {', '.join(Environment.__struct_fields__)}."
        raise EnvironmentProblem(f"{where} is no environment: {error}.", remedy=remedy) from error
    if problem := next(_find_problems(environment), ""):
        raise EnvironmentProblem(f"{where} cannot be used: {problem}")
    return environment


def check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise EnvironmentProblem(f"{name!r:.80} is not a name of an environment.", remedy=NAME_RULE)
    return name


async def define(
    context: RuntimeContext, name: str, environment: Environment, *, by: str, source: str = ""
) -> EnvironmentVersion:
    """Store the content as a new version, unless the newest version has it."""
    check_name(name)
    store = await open_store(context, "environments")
    body = {"name": name, "source": source, "network": environment.network}
    document = VersionedDocument(store=store, space=store.space, path=name, event=e.ENVIRONMENT_DEFINED, body=body)
    version = await put_version(context, document, describe(msgspec.to_builtins(environment)), by=by)
    if version is None:
        raise EnvironmentProblem(f"The environment {name} is being changed by others.", remedy="Try again.")
    return EnvironmentVersion(name, version, environment)


async def load_environment(context: RuntimeContext, name: str, version: int | None = None) -> EnvironmentVersion:
    """A version of an environment: the newest if `version` is None. Raises `EnvironmentProblem` if there is none."""
    if version == BUILT_IN and name in ("", DEFAULT):
        return BUILT_IN_DEFAULT
    check_name(name)
    store = await find_store(context, "environments")
    document = None if store is None else await context.ledger.document(store.space, name, version=version)
    if document is not None and document.text is not None:
        data = msgspec.json.decode(document.text)
        return EnvironmentVersion(name, document.version, parse_environment(data, f"The environment {name}"))
    if name == DEFAULT and version is None:
        return BUILT_IN_DEFAULT
    raise await _unknown(context, store, name, version)


async def list_environments(context: RuntimeContext) -> tuple[EnvironmentVersion, ...]:
    """The newest version of each environment of the ledger, and the built-in default unless a person has replaced it."""
    store = await find_store(context, "environments")
    names = [document.path async for document in list_documents(context, store)]
    found = [await load_environment(context, name) for name in names]
    return tuple(found) if DEFAULT in names else (BUILT_IN_DEFAULT, *found)


def _find_problems(environment: Environment) -> Iterator[str]:
    yield from _find_network_problems(environment)
    if environment.self_hosted and environment != Environment(self_hosted=True, description=environment.description):
        yield "it is self_hosted, so the machine of the worker decides the rest. Leave out everything but description."
    for path in environment.read_only:
        if not path.startswith("/") or path != os.path.normpath(path) or path == "/":
            yield f"the path {path!r:.200} of read_only is not an absolute path below /. Write it without '.' and '..'."
    for program in environment.packages:
        if not _PROGRAM.fullmatch(program):
            yield f"{program!r:.80} in packages is not the name of a program. Write the name of the command, such as node."
    for name, value in environment.variables.items():
        if not _VARIABLE.fullmatch(name) or _REFUSED_VARIABLES.fullmatch(name) or "\0" in value:
            yield f"the variable {name!r:.80} cannot be set by an environment. Choose another name, and a value without NUL."


def _find_network_problems(environment: Environment) -> Iterator[str]:
    if environment.hosts and environment.network != "limited":
        yield f"hosts are given, but the network is {environment.network}. Write `network: limited`, or leave them out."
    if environment.network == "limited" and not environment.hosts:
        yield "the network is limited, but no hosts are given. Name them, such as `pypi.org` or `*.npmjs.org`."
    for host in environment.hosts:
        if not _HOST.fullmatch(host) or len(host) > 253:
            yield f"{host!r:.80} in hosts is not the name of a host. Write names such as `pypi.org` or `*.npmjs.org`."


async def _unknown(context: RuntimeContext, store: Store | None, name: str, version: int | None) -> EnvironmentProblem:
    names = [DEFAULT, *[document.path async for document in list_documents(context, store)]]
    which = f"{name}, version {version}" if version else name
    known = ", ".join(dict.fromkeys(names))
    return EnvironmentProblem(
        f"There is no environment {which}.",
        remedy=Hint(f"Known here: {known}. ", Command("environments", "list"), " lists them."),
    )


def describe_effect(environment: Environment) -> str:
    """What an environment allows, in words for the person who decides whether to trust it."""
    if environment.self_hosted:
        return "tools run wherever a worker of yours runs, with its rights"
    network = f"network {environment.network}" + (f" ({', '.join(environment.hosts)})" if environment.hosts else "")
    paths = f", reads {', '.join(environment.read_only)}" if environment.read_only else ""
    setup = f", runs once: {environment.setup!r:.300}" if environment.setup else ""
    return f"{network}{paths}{setup}"


KIND = DefinitionKind(
    noun="environment",
    directory="environments",
    domain=b"fidelio.environment.v1:",
    verb="allow",
    parse=parse_environment,
    describe=describe_effect,
    check_name=check_name,
)
