"""Scripts of the executor `scripted`: their format in YAML, parsed and checked before a session is acknowledged.

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

and `fail: sentence` (or `{text: ..., reason: ...}`) and `crash: 3`, which end the turn with a failure. `save` takes paths that
begin with `text`, `json` (the text read as JSON), `structuredContent`, `content` or `_meta`. Placeholders are `{prompt}`,
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


class ScriptStep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the steps of a turn."""


class Say(ScriptStep, frozen=True):
    """Say a message."""

    text: str


class Find(ScriptStep, frozen=True):
    """Extract values from the prompt: the first group of each regular expression, or its whole match."""

    patterns: dict[str, str]


class Call(ScriptStep, frozen=True):
    """Call a tool. `save` stores values of the result under names."""

    tool: str
    server: str = ""
    arguments: dict[str, Any] = {}
    save: dict[str, str] = {}
    may_fail: bool = False


class Pause(ScriptStep, frozen=True):
    """Wait for a time, or until a file exists."""

    seconds: float = 60.0
    until: str = ""


class Ask(ScriptStep, frozen=True):
    """Ask a person. `options` are ids with their labels; without options any text is accepted."""

    text: str
    kind: Literal["permission", "question"] = "question"
    options: dict[str, str] = {}
    key: str = ""


class Use(ScriptStep, frozen=True):
    """Report this much more usage."""

    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0


class Write(ScriptStep, frozen=True):
    """Write a file of the project."""

    path: str
    text: str


class Data(ScriptStep, frozen=True):
    """Set the structured result."""

    value: Any


class Result(ScriptStep, frozen=True):
    """Set the result and end the turn; later steps are ignored."""

    text: str


class Fail(ScriptStep, frozen=True):
    """Fail with a sentence."""

    text: str
    reason: str = "scripted"


class Crash(ScriptStep, frozen=True):
    """End the process without a result."""

    code: int = 1


class WorkActivity(ScriptStep, frozen=True):
    """Carry out an activity of a workflow; only in the built-in script `workflow-worker`."""


class Script(msgspec.Struct, frozen=True):
    """A parsed script: the steps of each turn."""

    turns: tuple[tuple[ScriptStep, ...], ...]
    loop: bool = False

    def turn(self, number: int) -> tuple[ScriptStep, ...]:
        """The steps of the turn with this number, counted from 1."""
        index = (number - 1) % len(self.turns) if self.loop else min(number, len(self.turns)) - 1
        return self.turns[index]


class _ScriptFile(msgspec.Struct, forbid_unknown_fields=True):
    turns: list[list[dict[str, Any]]]
    loop: bool = False


# The class of each step, and the field of its short form.
_KINDS: Mapping[str, tuple[type[ScriptStep], str]] = {
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


def load_script(blueprint: Blueprint) -> Any:
    """Load the script of a blueprint: a mapping, the content of a file, or the name of the built-in script."""
    option = blueprint.options.get("script", ECHO)
    if not isinstance(option, str) or option == WORKER:
        return option
    file = _resolve_path(blueprint.source, option)
    try:
        return yaml.safe_load(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageProblem(f"The script {file} cannot be read: {error}.", remedy=REMEDY) from error


def parse_script(raw: Any) -> Script:
    """Parse a script; raises `UsageProblem` with its first error."""
    if raw == WORKER:
        return Script(((WorkActivity(),),))
    try:
        file = msgspec.convert(raw, _ScriptFile)
    except msgspec.ValidationError as error:
        raise UsageProblem(f"The script is invalid: {error}.", remedy=REMEDY) from error
    if not file.turns:
        raise UsageProblem("The script has no turns.", remedy=REMEDY)
    turns = (tuple(_parse_step(step, t, s) for s, step in enumerate(turn, 1)) for t, turn in enumerate(file.turns, 1))
    script = Script(tuple(turns), file.loop)
    _require_patterns(script)
    return script


def _parse_step(raw: Mapping[str, Any], turn: int, position: int) -> ScriptStep:
    where = f"Turn {turn}, step {position} of the script"
    if len(raw) != 1 or (name := next(iter(raw))) not in _KINDS:
        names = ", ".join(map(str, raw)) or "empty"
        raise UsageProblem(f"{where} is {names}, but must be one of {', '.join(_KINDS)}.", remedy=REMEDY)
    kind, short = _KINDS[name]
    value = raw[name]
    fields = value if isinstance(value, dict) and name not in _ALWAYS_SHORT else {short: value}
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise UsageProblem(f"{where} ({name}) is invalid: {error}.", remedy=REMEDY) from error


def _require_patterns(script: Script) -> None:
    """Require valid patterns, all in a single call because it starts a process."""
    finds = [step for turn in script.turns for step in turn if isinstance(step, Find)]
    patterns = tuple(pattern for step in finds for pattern in step.patterns.values())
    if patterns and (problem := find_pattern_problem(patterns)):
        raise UsageProblem(f"A step of the script (find) is invalid: {problem}", remedy=REMEDY)


def _resolve_path(source: str, path: str) -> Path:
    """Resolve a path relative to the directory of the blueprint."""
    base = Path(source or ".")
    return (base if base.is_dir() else base.parent) / path
