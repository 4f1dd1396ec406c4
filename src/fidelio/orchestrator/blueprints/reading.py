"""From files to one blueprint: whole and checked, or `UnreadableDefinition` with every fault at its line.

A blueprint is a folder with `agent.json` and, where it needs them, `agent.system-prompt.md` and `agent.mcp.json`; or a single
Markdown file whose front matter has the same keys and whose text is the system prompt.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from fidelio.definitions.findings import Finding, error
from fidelio.definitions.library.files import Files, join_path
from fidelio.definitions.reading.document import ParsedDocument, decode
from fidelio.definitions.reading.positions import MAX_BYTES, Path, make_error
from fidelio.errors import UnreadableDefinition
from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.orchestrator.blueprints.servers import Server, servers_of
from fidelio.orchestrator.blueprints.shape import (
    Fault,
    Head,
    PageHead,
    ServersFile,
    head_faults,
    servers_faults,
    servers_in,
    texts_with_nul,
    unknown_keys,
)

HEAD, PROMPT, SERVERS = "agent.json", "agent.system-prompt.md", "agent.mcp.json"
# Scripts and notes may lie beside; a folder with more than this was not meant to be a blueprint.
MOST_FILES = 50
_PLACE = re.compile(r"\.([\w-]+)|\[(\d+)\]")

S = TypeVar("S", bound=msgspec.Struct)


def read_folder(files: Files, folder: str, name: str) -> Blueprint:
    contents = _contents(files, folder)
    if HEAD not in contents:
        raise make_error(folder, "schema", f"The folder has no {HEAD}.", f"Write one, or move the folder out of {files.root}.")
    document = files.read(join_path(folder, HEAD)).document()
    head = _shaped(document, document.data, Head)
    _require_none(document, head_faults(head, name))
    servers = _read_servers(files, join_path(folder, SERVERS), head) if SERVERS in contents else ServersFile()
    prompt = decode(contents[PROMPT], join_path(folder, PROMPT)) if PROMPT in contents else ""
    return _blueprint(head, prompt, servers, source=folder, digest=_digest(contents))


def read_page(files: Files, path: str, name: str) -> Blueprint:
    kept = files.read(path)
    document = kept.document()
    front, body = document.data["front"], document.data["body"]
    if not front:
        remedy = "Begin with a line `---`, then `name:` and `description:`, then another `---`, then the system prompt."
        raise make_error(path, "schema", "The file has no front matter.", remedy)
    head = _shaped(document, front, PageHead, ("front",))
    servers = ServersFile(mcp_servers=head.mcp_servers)
    faults = [*head_faults(head, name), *servers_faults(head.mcp_servers, head.inherit, ("mcp_servers",))]
    _require_none(document, faults, ("front",))
    return _blueprint(head, body.strip(), servers, source=path, digest=_digest({os.path.basename(path): kept.raw}))  # noqa: PTH119  # a text, like all paths here


def _read_servers(files: Files, path: str, head: Head) -> ServersFile:
    document = files.read(path).document()
    servers = _shaped(document, document.data, ServersFile)
    _require_none(document, servers_faults(servers.mcp_servers, head.inherit, ("mcpServers",)))
    return servers


def _blueprint(head: Head, prompt: str, servers: ServersFile, *, source: str, digest: str) -> Blueprint:
    said = {field: getattr(head, field) for field in Head.__struct_fields__ if field != "skills"}
    return Blueprint(
        **{**said, "description": head.description.strip()},
        system_prompt=prompt,
        mcp_servers=servers_of(servers.mcp_servers),
        source=source,
        hash=digest,
    )


def _contents(files: Files, folder: str) -> dict[str, bytes]:
    """Everything that lies in the folder itself, without what is hidden."""
    names = [name for name in files.files(folder) if not name.startswith(".")]
    if len(names) > MOST_FILES:
        raise make_error(folder, "too-large", f"The folder has {len(names)} files.", f"Keep at most {MOST_FILES} beside it.")
    contents = {name: files.read(join_path(folder, name)).raw for name in names}
    for name, raw in contents.items():
        if len(raw) > MAX_BYTES:
            sentence = f"The file has more than {MAX_BYTES} bytes."
            raise make_error(join_path(folder, name), "too-large", sentence, "Move it out of the blueprint.")
    return contents


def _digest(contents: Mapping[str, bytes]) -> str:
    """Commits to every file and its name, wherever the blueprint lies."""
    listed = {os.fsencode(name).hex(): hashlib.sha256(raw).hexdigest() for name, raw in contents.items()}
    return hashlib.sha256(msgspec.json.encode(listed, order="deterministic")).hexdigest()


def _shaped(document: ParsedDocument, data: Any, shape: type[S], under: Path = ()) -> S:
    if not isinstance(data, dict):
        raise make_error(document.name, "schema", "The file has to hold an object.", "Put everything between { and }.")
    _require_none(document, [*unknown_keys(data, shape), *texts_with_nul(data)], under)
    for path, server in servers_in(data):
        # One by one, because the converter does not say which of them it means.
        _converted(document, server, Server, under, path)
    return _converted(document, data, shape, under, ())


def _converted(document: ParsedDocument, data: Any, shape: type[S], under: Path, base: Path) -> S:
    try:
        return msgspec.convert(data, shape)
    except msgspec.ValidationError as problem:
        raise UnreadableDefinition([_misfit(document, str(problem), under, base)]) from None


def _misfit(document: ParsedDocument, problem: str, under: Path, base: Path) -> Finding:
    """The converter says what it expected and, after ` - at `, where."""
    said, _, place = problem.partition(" - at `$")
    path: Path = (*base, *(key or int(number) for key, number in _PLACE.findall(place)))
    where = f"`{'.'.join(map(str, path))}`: " if path else ""
    return error(document.name, "schema", f"{where}{said}.", "See the guide to blueprints.", at=document.at((*under, *path)))


def _require_none(document: ParsedDocument, faults: Iterable[Fault], under: Path = ()) -> None:
    found = [
        error(document.name, "schema", f"`{'.'.join(map(str, path))}` {said}", remedy, at=document.at((*under, *path)))
        for path, said, remedy in faults
    ]
    if found:
        raise UnreadableDefinition(sorted(found))
