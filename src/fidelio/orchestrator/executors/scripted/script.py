"""The score of an agent without a model: what it does in each turn, read from YAML and checked before anything is promised.

    loop: false                      # true: after the last turn the first comes again; else the last is repeated
    turns:
      - - say: Reading {prompt}
        - find: {token: 'session_token: (\\S+)'}         # by regular expression in the prompt; {saved.token} afterwards
        - call:
            server: fidelio          # not needed when there is only one
            tool: get_activity
            arguments: {session_token: '{saved.token}'}
            save: {token: _meta.session_token}
            may_fail: false          # true: goes on after an error
        - pause: 0.2                 # or {until: FILE, seconds: 60}
        - ask: {text: May I?, kind: permission, options: {yes: Go on, no: Stop}}
        - use: {input_tokens: 10, output_tokens: 5, cost_usd: 0.01}
        - write: {path: notes.md, text: '{answer}'}
        - data: {answer: '{answer}'}
        - result: Done in turn {turn}.

and `fail: sentence` (or `{text: ..., reason: ...}`) and `crash: 3`, which end the turn badly. What `save` keeps is a path that
begins with `text`, `json` (the text read as JSON), `structuredContent`, `content` or `_meta`. Placeholders are `{prompt}`,
`{turn}`, `{run}`, `{session}`, `{directory}`, `{answer}`, `{answer.option}`, `{answer.text}`, `{returned}` (the text
of the last tool result) and `{saved.NAME}`; other braces stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml

from fidelio.errors import UsageProblem
from fidelio.orchestrator.blueprints.model import Blueprint
from fidelio.validation import find_pattern_problem

WORKER = "workflow-worker"
ECHO: Mapping[str, Any] = {"turns": [[{"result": "{prompt}"}]]}
REMEDY = "The reference of the executor `scripted` lists the steps."


class Step(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of what can be done in a turn."""


class Say(Step, frozen=True):
    """A message on the way."""

    text: str


class Find(Step, frozen=True):
    """Takes values out of the prompt: the first group of each expression, or all that it matches."""

    patterns: dict[str, str]


class Call(Step, frozen=True):
    """Uses a tool. `save` keeps parts of the result, each under a name."""

    tool: str
    server: str = ""
    arguments: dict[str, Any] = {}
    save: dict[str, str] = {}
    may_fail: bool = False


class Pause(Step, frozen=True):
    """Waits for a time, or until a file is there."""

    seconds: float = 60.0
    until: str = ""


class Ask(Step, frozen=True):
    """Asks a person. `options` are ids with their labels; none means that any text will do."""

    text: str
    kind: Literal["permission", "question"] = "question"
    options: dict[str, str] = {}
    key: str = ""


class Use(Step, frozen=True):
    """Claims to have used this much more."""

    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0


class Write(Step, frozen=True):
    """Writes a file of the project."""

    path: str
    text: str


class Data(Step, frozen=True):
    """The structured result."""

    value: Any


class Result(Step, frozen=True):
    """The last word; nothing after it is done."""

    text: str


class Fail(Step, frozen=True):
    """Cannot do it, and says so."""

    text: str
    reason: str = "scripted"


class Crash(Step, frozen=True):
    """Ends without a word."""

    code: int = 1


class WorkActivity(Step, frozen=True):
    """Carries out one activity of a workflow; only the built-in script does it."""


class Script(msgspec.Struct, frozen=True):
    """The turns of a conversation."""

    turns: tuple[tuple[Step, ...], ...]
    loop: bool = False

    def turn(self, number: int) -> tuple[Step, ...]:
        """What is done in turn `number`, which counts from 1."""
        place = (number - 1) % len(self.turns) if self.loop else min(number, len(self.turns)) - 1
        return self.turns[place]


class _Raw(msgspec.Struct, forbid_unknown_fields=True):
    turns: list[list[dict[str, Any]]]
    loop: bool = False


# The kind of each step, and the field that its short form fills.
_KINDS: Mapping[str, tuple[type[Step], str]] = {
    "say": (Say, "text"),
    "find": (Find, "patterns"),
    "call": (Call, ""),
    "pause": (Pause, "seconds"),
    "ask": (Ask, "text"),
    "use": (Use, ""),
    "write": (Write, ""),
    "data": (Data, "value"),
    "result": (Result, "text"),
    "fail": (Fail, "text"),
    "crash": (Crash, "code"),
}
_ALWAYS_SHORT = frozenset({"find", "data"})


def raw_script(blueprint: Blueprint) -> Any:
    """What the blueprint says of its script, with a file already read: a mapping, or the name of a built-in one."""
    given = blueprint.options.get("script", ECHO)
    if not isinstance(given, str) or given == WORKER:
        return given
    file = _beside(blueprint.source, given)
    try:
        return yaml.safe_load(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageProblem(f"The script {file} cannot be read: {error}.", remedy=REMEDY) from error


def read_script(raw: Any) -> Script:
    """Raises `UsageProblem` with the first thing that is wrong."""
    if raw == WORKER:
        return Script(((WorkActivity(),),))
    try:
        read = msgspec.convert(raw, _Raw)
    except msgspec.ValidationError as error:
        raise UsageProblem(f"The script is not right: {error}.", remedy=REMEDY) from error
    if not read.turns:
        raise UsageProblem("The script has no turns.", remedy=REMEDY)
    turns = (tuple(_step(step, t, s) for s, step in enumerate(turn, 1)) for t, turn in enumerate(read.turns, 1))
    script = Script(tuple(turns), read.loop)
    _require_patterns(script)
    return script


def _step(raw: Mapping[str, Any], turn: int, place: int) -> Step:
    where = f"Turn {turn}, step {place} of the script"
    if len(raw) != 1 or (name := next(iter(raw))) not in _KINDS:
        named = ", ".join(map(str, raw)) or "nothing"
        raise UsageProblem(f"{where} says {named}, but is to be one of {', '.join(_KINDS)}.", remedy=REMEDY)
    kind, short = _KINDS[name]
    value = raw[name]
    fields = value if isinstance(value, dict) and name not in _ALWAYS_SHORT else {short: value}
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise UsageProblem(f"{where} ({name}) is not right: {error}.", remedy=REMEDY) from error


def _require_patterns(script: Script) -> None:
    """All at once, because whoever tries them has to be started for it."""
    finds = [step for turn in script.turns for step in turn if isinstance(step, Find)]
    patterns = tuple(pattern for step in finds for pattern in step.patterns.values())
    if patterns and (fault := find_pattern_problem(patterns)):
        raise UsageProblem(f"A step of the script (find) is not right: {fault}", remedy=REMEDY)


def _beside(source: str, given: str) -> Path:
    """Relative to the blueprint: to its directory, or to the directory that its file is in."""
    place = Path(source or ".")
    return (place if place.is_dir() else place.parent) / given
