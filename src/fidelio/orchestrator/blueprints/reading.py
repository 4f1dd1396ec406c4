"""Parser of blueprint files: returns a valid blueprint, or raises `UnreadableDefinition` with every problem at its line.

A blueprint is a folder with `agent.json` and, where it needs them, `agent.system-prompt.md` and `agent.mcp.json`; or a single
Markdown file whose front matter has the same keys and whose text is the system prompt.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from fidelio.definitions.findings import Finding, error
from fidelio.definitions.library.files import FileContent, Files, join_path
from fidelio.definitions.library.identifiers import suggest_names
from fidelio.definitions.reading.document import ParsedDocument, decode
from fidelio.definitions.reading.positions import MAX_BYTES, Path, make_error
from fidelio.errors import UnreadableDefinition
from fidelio.orchestrator.blueprints.model import Blueprint, Limits, Permissions, Tools, find_own_policies
from fidelio.orchestrator.blueprints.servers import NonEmptyText, ServerEntry, find_server_problems, to_mcp_servers
from fidelio.validation import find_schema_problem

HEAD_FILE, PROMPT_FILE, SERVERS_FILE = "agent.json", "agent.system-prompt.md", "agent.mcp.json"
# A folder may hold scripts and notes too; a folder with more files is not a blueprint.
MAX_FILES = 50
_PATH_STEP = re.compile(r"\.([\w-]+)|\[(\d+)\]")

S = TypeVar("S", bound=msgspec.Struct)


def read_folder(files: Files, folder: str, name: str) -> Blueprint:
    contents = _read_contents(files, folder)
    if HEAD_FILE not in contents:
        raise make_error(
            folder, "schema", f"The folder has no {HEAD_FILE}.", f"Write one, or move the folder out of {files.root}."
        )
    # Parsed from the bytes that are hashed: a file that is exchanged in between must not run under the hash of another.
    document = contents[HEAD_FILE].document()
    head = _convert_document(document, document.data, BlueprintHead)
    _raise_problems(document, find_head_problems(head, name))
    servers = _read_servers(contents[SERVERS_FILE], head) if SERVERS_FILE in contents else ServersFile()
    prompt = decode(contents[PROMPT_FILE].raw, join_path(folder, PROMPT_FILE)) if PROMPT_FILE in contents else ""
    digest = _hash_contents({name: content.raw for name, content in contents.items()})
    return _build_blueprint(head, prompt, servers, source=folder, digest=digest)


def read_page(files: Files, path: str, name: str) -> Blueprint:
    file = files.read(path)
    document = file.document()
    document.check_front_matter()
    front, body = document.data["front"], document.data["body"]
    if not front:
        remedy = "Begin with a line `---`, then `name:` and `description:`, then another `---`, then the system prompt."
        raise make_error(path, "schema", "The file has no front matter.", remedy)
    head = _convert_document(document, front, PageHead, ("front",))
    servers = ServersFile(mcp_servers=head.mcp_servers)
    problems = [
        *find_head_problems(head, name),
        *find_server_problems(head.mcp_servers, head.inherit, ("mcp_servers",), head.tools),
    ]
    _raise_problems(document, problems, ("front",))
    return _build_blueprint(head, body.strip(), servers, source=path, digest=_hash_contents({os.path.basename(path): file.raw}))  # noqa: PTH119  # a text, like all paths here


def _read_servers(file: FileContent, head: BlueprintHead) -> ServersFile:
    document = file.document()
    servers = _convert_document(document, document.data, ServersFile)
    _raise_problems(document, find_server_problems(servers.mcp_servers, head.inherit, ("mcpServers",), head.tools))
    return servers


def _build_blueprint(head: BlueprintHead, prompt: str, servers: ServersFile, *, source: str, digest: str) -> Blueprint:
    message = {field: getattr(head, field) for field in BlueprintHead.__struct_fields__ if field != "skills"}
    return Blueprint(
        **{**message, "description": head.description.strip()},
        system_prompt=prompt,
        mcp_servers=to_mcp_servers(servers.mcp_servers),
        source=source,
        hash=digest,
    )


def _read_contents(files: Files, folder: str) -> dict[str, FileContent]:
    """Read the files in the folder itself, without hidden files."""
    names = [name for name in files.files(folder) if not name.startswith(".")]
    if len(names) > MAX_FILES:
        raise make_error(folder, "too-large", f"The folder has {len(names)} files.", f"Keep at most {MAX_FILES} files in it.")
    contents = {name: files.read(join_path(folder, name)) for name in names}
    for name, content in contents.items():
        if len(content.raw) > MAX_BYTES:
            sentence = f"The file has more than {MAX_BYTES} bytes."
            raise make_error(join_path(folder, name), "too-large", sentence, "Move it out of the blueprint.")
    return contents


def _hash_contents(contents: Mapping[str, bytes]) -> str:
    """The digest of all files and their names, independent of the location of the folder."""
    listed = {os.fsencode(name).hex(): hashlib.sha256(raw).hexdigest() for name, raw in contents.items()}
    return hashlib.sha256(msgspec.json.encode(listed, order="deterministic")).hexdigest()


def _convert_document(document: ParsedDocument, data: Any, shape: type[S], under: Path = ()) -> S:
    if not isinstance(data, dict):
        raise make_error(document.name, "schema", "The file has to hold an object.", "Put everything between { and }.")
    _raise_problems(document, [*find_unknown_keys(data, shape), *find_nul_characters(data)], under)
    for path, server in iterate_servers(data):
        # Converted one by one, because the error of the converter does not name the server.
        _convert(document, server, ServerEntry, under, path)
    return _convert(document, data, shape, under, ())


def _convert(document: ParsedDocument, data: Any, shape: type[S], under: Path, base: Path) -> S:
    try:
        return msgspec.convert(data, shape)
    except msgspec.ValidationError as problem:
        raise UnreadableDefinition([_conversion_finding(document, str(problem), under, base)]) from None


def _conversion_finding(document: ParsedDocument, problem: str, under: Path, base: Path) -> Finding:
    """The finding for an error of the converter, which says what it expected and, after ` - at `, where."""
    message, _, location = problem.partition(" - at `$")
    path: Path = (*base, *(key or int(number) for key, number in _PATH_STEP.findall(location)))
    where = f"`{'.'.join(map(str, path))}`: " if path else ""
    return error(document.name, "schema", f"{where}{message}.", "See the guide to blueprints.", at=document.at((*under, *path)))


def _raise_problems(document: ParsedDocument, problems: Iterable[BlueprintProblem], under: Path = ()) -> None:
    found = [
        error(document.name, "schema", f"`{'.'.join(map(str, path))}` {message}", remedy, at=document.at((*under, *path)))
        for path, message, remedy in problems
    ]
    if found:
        raise UnreadableDefinition(sorted(found))


_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# Path in the file, what is wrong, what to do.
BlueprintProblem = tuple[Path, str, str]


class BlueprintHead(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of `agent.json`. `skills` is accepted for compatibility with older files and ignored."""

    name: NonEmptyText
    description: NonEmptyText
    executor: NonEmptyText | None = None
    model: NonEmptyText | None = None
    permissions: Permissions = Permissions()
    limits: Limits = Limits()
    input_schema: dict[str, Any] | None = None
    output_schema: dict[str, Any] | None = None
    tags: tuple[str, ...] = ()
    environment: dict[str, str] = msgspec.field(default_factory=dict)
    inherit: tuple[str, ...] = ()
    worktree: bool = False
    resume_lost: bool = False
    tools: Tools = "own"
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    skills: tuple[str, ...] = ()


class PageHead(BlueprintHead, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The front matter of a Markdown blueprint, which also holds its servers."""

    mcp_servers: dict[str, ServerEntry] = msgspec.field(default_factory=dict)


class ServersFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of `agent.mcp.json`."""

    mcp_servers: dict[str, ServerEntry] = msgspec.field(default_factory=dict, name="mcpServers")


def find_unknown_keys(data: Any, shape: type[msgspec.Struct], path: Path = ()) -> Iterator[BlueprintProblem]:
    """Yield unknown keys, each with a suggestion."""
    if not isinstance(data, dict):
        return
    kinds = {field.encode_name: field.type for field in msgspec.structs.fields(shape)}
    for key, value in data.items():
        here = (*path, key)
        if key not in kinds:
            yield here, "means nothing here.", suggest_names(key, kinds) or f"The keys are {', '.join(kinds)}."
        elif kinds[key] in (Permissions, Limits):
            yield from find_unknown_keys(value, kinds[key], here)
    for here, server in iterate_servers(data) if not path else ():
        yield from find_unknown_keys(server, ServerEntry, here)


def iterate_servers(data: dict[str, Any]) -> Iterator[tuple[Path, Any]]:
    """Yield every server of the front matter or of `agent.mcp.json` with its path."""
    for key in ("mcp_servers", "mcpServers"):
        servers = data.get(key)
        yield from (((key, name), server) for name, server in servers.items()) if isinstance(servers, dict) else ()


def find_head_problems(head: BlueprintHead, name: str) -> Iterator[BlueprintProblem]:
    if head.name != name:
        yield ("name",), f"is {head.name!r:.80}, but on disk the blueprint is called {name}.", "Make the two names equal."
    if not head.description.strip():
        yield ("description",), "is empty.", "Say in a sentence what the agent is good for."
    if head.tools == "sandbox" and head.worktree:
        yield ("worktree",), "contradicts `tools: sandbox`, which has its own copy of the project.", "Remove one of the two."
    yield from _find_proof_problems(head)
    for field in ("environment", "inherit"):
        for variable in getattr(head, field):
            if not _VARIABLE.fullmatch(variable):
                yield (field,), f"names {variable!r:.80}, which is not a variable name.", "Use letters, digits and underscores."
    for field in ("input_schema", "output_schema"):
        schema = getattr(head, field)
        if schema is not None and (problem := find_schema_problem(schema)):
            yield (field,), f"is not a valid JSON Schema: {problem}", "Correct it."


def _find_proof_problems(head: BlueprintHead) -> Iterator[BlueprintProblem]:
    """A demand for signatures that nothing would carry out."""
    where = ("permissions", "answered_by")
    if head.permissions.needs_proof and head.permissions.mode == "full":
        yield where, "demands signatures, but the mode `full` asks nobody.", "Use another mode, or remove the key."
    if head.permissions.needs_proof and (owner := find_own_policies(head)):
        remedy = "Remove the key, and give those tools the policy `proven`."
        yield where, f"does not reach {owner}, whose tools have policies of their own.", remedy


def find_nul_characters(data: Any, path: Path = ()) -> Iterator[BlueprintProblem]:
    """Yield texts with a NUL character, which cannot be an argument or a variable of a process."""
    if isinstance(data, str) and "\0" in data:
        yield path, "holds the character NUL, which cannot be passed to a program.", "Delete it."
    if isinstance(data, dict):
        items: Any = data.items()
    else:
        items = enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield from find_nul_characters(value, (*path, key))
