"""Tools of a server or an agent: their table, typed parameters, the context of a call and its outcome.

The MCP servers and the agent runtime share this module. It imports neither a transport nor the inbox: a call gets what it
needs of them in its `CallContext`, which the server of the table builds.

A handler gets its arguments and a `CallContext`, and returns `Done` or `AskPerson`. A handler that asks is called again after
the answer and finds it in the record, so it keeps no state between the two calls.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from itertools import islice
from typing import Any, Generic, TypeVar

import msgspec

from fidelio.errors import Command, FidelioError, Text, UsageProblem
from fidelio.processes.caller import PERSON, Caller, combine_callers
from fidelio.processes.table import AGENT_MARKER

P = TypeVar("P", bound=msgspec.Struct)
# The message of a msgspec error, and the path in the arguments that it refers to.
_VALIDATION_MESSAGE = re.compile(r"(?P<sentence>.*?)(?: - at `(?P<key>key in )?\$(?P<path>.*)`)?", re.DOTALL)


class Done(msgspec.Struct, frozen=True):
    """A finished call: text for the model, and metadata and small structured content for the client.

    A large document goes into `text` alone; `structured` then holds only its metadata. `remarks` are additional text blocks.
    """

    text: str
    meta: Mapping[str, Any] = msgspec.field(default_factory=dict)
    is_error: bool = False
    structured: Mapping[str, Any] | None = None
    remarks: tuple[str, ...] = ()

    def as_result(self) -> dict[str, Any]:
        content = [{"type": "text", "text": text} for text in (self.text, *self.remarks)]
        result: dict[str, Any] = {"content": content, "isError": self.is_error}
        if self.structured is not None:
            result["structuredContent"] = dict(self.structured)
        if self.meta:
            result["_meta"] = dict(self.meta)
        return result


class AnswerOption(msgspec.Struct, frozen=True):
    """An answer that a person can choose."""

    id: str
    label: str
    description: str = ""


class AskPerson(msgspec.Struct, frozen=True):
    """A request that only a person may answer.

    `record_answer(option id, person)` records the answer. `waiting_reply` is the reply when no person could be asked or none
    answered in time; `record_unanswered()` records that. `wait_until_answered()` returns once the request was answered through
    another channel, so that the client can stop asking. `session` is the session that the request belongs to. An answer that
    comes sooner than `min_response_ms` after it was sent is not recorded. With `needs_proof` no form can give the answer.
    """

    request_id: str
    message: str
    options: tuple[AnswerOption, ...]
    record_answer: Callable[[str, str], Awaitable[None]]
    waiting_reply: Done | None = None
    wait_until_answered: Callable[[], Awaitable[None]] | None = None
    record_unanswered: Callable[[], Awaitable[None]] | None = None
    session: str = ""
    min_response_ms: int = 0
    needs_proof: bool = False

    def find_haste(self, after_ms: float) -> str:
        """Why an answer cannot be a person's that came so soon after the question was sent; empty if it can."""
        if after_ms >= self.min_response_ms:
            return ""
        needed = f"a person needs at least {self.min_response_ms} ms"
        return f"The answer came {after_ms:.0f} ms after the question; {needed}. The question stays open."


Outcome = Done | AskPerson
# Turns the id of an open request into a question to the person at the client. Bound to the inbox by the composition root.
Ask = Callable[[str], Awaitable[AskPerson]]
# Receives the progress of a call: done, total, message.
Reporter = Callable[[float, float | None, str | None], Awaitable[None]]
# Finds out who is at the other end of a connection. May be slow.
IdentifyPeer = Callable[[], Awaitable[Caller]]
# Renders a text of ours for the client, with its commands as a person types them.
Render = Callable[[Text | Command], str]


class DeliveredTexts:
    """Digests of the texts that a connection has delivered, by session, agent and name, so that nothing is sent twice.

    Bounded: what is forgotten is sent whole again.
    """

    MAX_SESSIONS, MAX_TEXTS = 64, 512

    def __init__(self) -> None:
        self._sessions: dict[str, dict[tuple[str, str], str]] = {}

    def has(self, session: str, agent: str, name: str, digest: str) -> bool:
        """Whether the agent got this text last under this name."""
        return self._sessions.get(session, {}).get((agent, name)) == digest

    def add(self, session: str, agent: str, name: str, digest: str) -> None:
        """Record a text that is sent whole."""
        texts = self._sessions.pop(session, {})
        if len(texts) >= self.MAX_TEXTS:
            texts.clear()
        if len(self._sessions) >= self.MAX_SESSIONS:
            self._sessions.pop(next(iter(self._sessions)))
        texts[agent, name] = digest
        self._sessions[session] = texts

    def forget(self, session: str) -> None:
        """Forget the texts of a session whose agent has lost its context."""
        self._sessions.pop(session, None)


class CallContext(msgspec.Struct):
    """Context of a tool call: rendering, caller, progress, and the port to the person. Built once per call by the server.

    `claimed` is the caller by the signs that cost nothing: those of the server's process, and the header of the request.
    `person_requests` holds the ids of requests that this call has put to a person. The handler is then called again and must
    use the person's answer, not the one in the model's arguments. Later calls get a new context. `delivered` belongs to the
    connection; None if there is none. `session` is the session that the address of the request names, and `can_elicit` says
    whether the client is able to ask its user. `warnings` are about the form of the call.
    """

    render: Render = str
    claimed: Caller = PERSON
    reporter: Reporter | None = None
    ask_port: Ask | None = None
    identify_peer: IdentifyPeer | None = None
    person_requests: set[str] = msgspec.field(default_factory=set)
    delivered: DeliveredTexts | None = None
    session: str = ""
    can_elicit: bool = False
    warnings: list[str] = msgspec.field(default_factory=list)
    _caller: Caller | None = None

    async def identify(self) -> Caller:
        """The caller by all signs. Looks at the process of the peer, so only code that depends on the caller calls this."""
        if self._caller is None:
            peer = PERSON if self.identify_peer is None else await self.identify_peer()
            self._caller = combine_callers(self.claimed, peer)
        return self._caller

    async def explain_silence(self) -> str:
        """Why this client must not ask its user; empty if it may."""
        caller = await self.identify()
        if caller.is_agent:
            return "This call comes from an agent, which is not asked on behalf of a person."
        if caller.kind == "unseen":
            return "The program at the other end of this connection cannot be identified, so its user is not asked."
        return ""

    async def ask(self, request_id: str) -> AskPerson:
        """Put an open request to the person at the client; the answer is recorded as that person's."""
        if self.ask_port is None:
            raise RuntimeError("CallContext.ask_port is not set, so no person can be asked. Pass `ask` to ServedTools.")
        question = await self.ask_port(request_id)
        self.person_requests.add(question.request_id)
        return question

    async def report(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress; `done` must grow with every report. A no-op unless the client requested progress."""
        if self.reporter is not None:
            await self.reporter(done, total, message)


def unknown_agent(claimed: str = "") -> UsageProblem:
    """The error for an agent whose run is not known: nothing that it changes could be attributed or limited.

    `claimed`: the run that it claims, and that does not fit its processes.
    """
    if claimed:
        return UsageProblem(
            f"This call claims to come from the agent of run {claimed}, but that run is not at work, or this process does not "
            "run below its process. It may only read.",
            remedy="Call from a process that the agent has started, while the agent works.",
        )
    return UsageProblem(
        "This call comes from an agent, or from a process that hides or belongs to another user, and the signs of its run are "
        "missing, malformed or contradict each other. It may only read.",
        remedy=f"Leave {AGENT_MARKER} and the header Fidelio-Agent as Fidelio has set them.",
    )


@cache
def input_schema(parameters: type[msgspec.Struct]) -> dict[str, Any]:
    """JSON Schema of a tool's parameters, with the outermost definition inlined as MCP requires."""
    (schema,), definitions = msgspec.json.schema_components([parameters], ref_template="#/$defs/{name}")
    inlined = dict(definitions.pop(parameters.__name__)) if "$ref" in schema else dict(schema)
    inlined.pop("title", None)
    inlined.pop("description", None)
    return {**inlined, "$defs": definitions} if definitions else inlined


# Bounds that a call is checked against, and that a model does not need in order to make one.
_CHECKED_ONLY = frozenset({"minLength", "maxLength", "maxItems", "minimum"})
_NULL = {"type": "null"}
# How many unknown arguments a message names, and how much of each name.
MAX_UNKNOWN, MAX_NAME = 5, 100


def shorten_schema(schema: Any) -> Any:
    """The schema as a model pays for it with each request: without null for what may be left out, and without size limits."""
    if isinstance(schema, list):
        return [shorten_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    short = {key: _shorten_value(key, value) for key, value in schema.items() if not _is_derivable(key, value)}
    kinds = short.get("anyOf")
    if isinstance(kinds, list) and _NULL in kinds and schema.get("default", _NULL) is None:
        others = [kind for kind in kinds if kind != _NULL]
        rest = {key: value for key, value in short.items() if key not in ("anyOf", "default")}
        return {**rest, **(others[0] if len(others) == 1 else {"anyOf": others})}
    return short


def _shorten_value(key: str, value: Any) -> Any:
    # The names below `properties` are those of parameters, not of the schema.
    if key in ("properties", "$defs"):
        left_out = ("title", "description") if key == "$defs" else ()
        return {name: shorten_schema({k: v for k, v in about.items() if k not in left_out}) for name, about in value.items()}
    return value if key == "default" else shorten_schema(value)


def _is_derivable(key: str, value: Any) -> bool:
    if key in ("maximum", "exclusiveMaximum"):
        return bool(value > 1 << 30)
    return key in _CHECKED_ONLY or (key == "required" and not value) or (key == "default" and value in ({}, []))


def read_arguments(tool: str, parameters: type[P], arguments: Mapping[str, Any]) -> P:
    """Validate and convert the arguments of a call. Unknown arguments are ignored; `find_unknown_arguments` finds them."""
    try:
        return msgspec.convert(arguments, parameters)
    except msgspec.ValidationError as error:
        unknown = find_unknown_arguments(tool, parameters, arguments)
        if unknown is not None and str(error).startswith("Object contains unknown field"):
            raise unknown from error
        remedy = f"{f'{unknown.sentence} ' if unknown else ''}It takes: {_list_fields(parameters)}."
        raise UsageProblem(f"Invalid arguments for tool {tool}: {_explain(str(error))}.", remedy=remedy) from error


def _list_fields(parameters: type[msgspec.Struct]) -> str:
    return ", ".join(parameters.__struct_encode_fields__) or "nothing"


def find_unknown_arguments(tool: str, parameters: type[msgspec.Struct], arguments: Mapping[str, Any]) -> UsageProblem | None:
    """The problem of arguments that the tool does not have, with the most similar names; None if it has all of them."""
    schema = input_schema(parameters)
    if not (found := list(islice(_iter_unknown(schema, schema.get("$defs", {}), arguments, ""), MAX_UNKNOWN))):
        return None
    words = " and ".join(f"`{path}`{near}" for path, near in found)
    return UsageProblem(f"Tool {tool} has no argument {words}.", remedy=f"It takes: {_list_fields(parameters)}.")


def _iter_unknown(
    schema: Mapping[str, Any], definitions: Mapping[str, Any], value: object, path: str
) -> Iterator[tuple[str, str]]:
    """The path of every key that an object of the schema does not have, and a suggestion."""
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    for kind in schema.get("anyOf", ()):
        yield from _iter_unknown(kind, definitions, value, path)
    if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        for index, item in enumerate(value):
            yield from _iter_unknown(schema["items"], definitions, item, f"{path}[{index}]")
    known = schema.get("properties")
    if not isinstance(value, Mapping) or known is None:
        return
    for key, item in value.items():
        inner = f"{path}.{key}" if path else str(key)
        if key in known:
            yield from _iter_unknown(known[key], definitions, item, inner)
        else:
            near = get_close_matches(str(key), known, n=1)
            yield inner if len(inner) <= MAX_NAME else f"{inner[:MAX_NAME]}…", f" (did you mean `{near[0]}`?)" if near else ""


def _explain(message: str) -> str:
    match = _VALIDATION_MESSAGE.fullmatch(message)
    if match is None or not match["path"]:
        return message
    return f"`{match['path'].lstrip('.')}`: {match['sentence']}"


class Tool(msgspec.Struct, Generic[P], frozen=True):
    """The declaration of a tool. The four flags are the annotations (hints) of MCP."""

    name: str
    title: str
    description: str
    parameters: type[P]
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False
    output_schema: Mapping[str, Any] | None = None

    def describe(self) -> dict[str, Any]:
        description = {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": shorten_schema(input_schema(self.parameters)),
            "annotations": {
                "readOnlyHint": self.read_only,
                "destructiveHint": self.destructive,
                "idempotentHint": self.idempotent,
                "openWorldHint": self.open_world,
            },
        }
        return {**description, "outputSchema": dict(self.output_schema)} if self.output_schema is not None else description


class ToolHandlers:
    """Base class of handlers. For every tool of a table it has an async method with the name of the tool.

    The method takes the parameters of the tool and the `CallContext`, and returns an `Outcome`. A set of tools that another
    layer validates and carries out overrides `call` instead.
    """

    async def call(self, tool: Tool[Any], arguments: Mapping[str, Any], context: CallContext) -> Outcome:
        """Validate the arguments and call the method of the tool."""
        handler: Callable[[Any, CallContext], Awaitable[Outcome]] = getattr(self, tool.name)
        try:
            parameters = read_arguments(tool.name, tool.parameters, arguments)
            if (unknown := find_unknown_arguments(tool.name, tool.parameters, arguments)) is not None:
                await self.admit_unknown_arguments(unknown, arguments, context)
        except FidelioError as error:
            await self.record_refused_call(tool.name, arguments, error)
            raise
        return await handler(parameters, context)

    async def admit_unknown_arguments(self, problem: UsageProblem, _: Mapping[str, Any], __: CallContext) -> None:
        """Called for a call with arguments that its tool does not have. Raises the problem: ignoring them loses something."""
        raise problem

    async def record_refused_call(self, tool: str, arguments: Mapping[str, Any], error: FidelioError) -> None:
        """Called for a call whose arguments failed validation, which no handler sees."""

    def render_error(self, error: FidelioError) -> Text:
        """The text of an error; the context of the call then renders the commands in it."""
        return error.text

    def describe_failure(self, error: FidelioError, context: CallContext) -> Done:
        """The result of a call that failed."""
        return Done(context.render(self.render_error(error)), is_error=True)


class ToolTable:
    """Tools by name. Every failure becomes a result with `is_error` and a remedy, never a protocol error.

    The handlers are loaded by the first call, because a client that only lists the tools should not wait for their imports.
    """

    def __init__(
        self, tools: Iterable[Tool[Any]], load_handlers: Callable[[], ToolHandlers], *, unlisted: Collection[str] = ()
    ) -> None:
        """`unlisted` tools are not offered; calling them is answered with the reason."""
        self._tools = {tool.name: tool for tool in tools}
        self._unlisted = frozenset(unlisted)
        self._load_handlers = cache(load_handlers)
        self._descriptions: list[dict[str, Any]] = []

    def describe(self) -> list[dict[str, Any]]:
        """The result of `tools/list`. Cached, because building the schemas costs more than a call."""
        if not self._descriptions:
            self._descriptions = [tool.describe() for name, tool in self._tools.items() if name not in self._unlisted]
        return self._descriptions

    async def call(self, name: str, arguments: Mapping[str, Any], context: CallContext) -> Outcome:
        try:
            tool = self._find(name)
            if context.claimed.kind == "unknown" and not tool.read_only:
                raise unknown_agent()
            return await self._load_handlers().call(tool, arguments, context)
        except FidelioError as error:
            return self._load_handlers().describe_failure(error, context)

    def _find(self, name: str) -> Tool[Any]:
        tool = self._tools.get(name)
        if tool is None:
            short_name = name if len(name) <= 100 else f"{name[:100]}…"
            raise UsageProblem(f"Tool {short_name} not found.", remedy=f"The tools are: {', '.join(self._tools)}.")
        return tool
