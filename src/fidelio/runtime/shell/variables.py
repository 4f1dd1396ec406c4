"""Durable variables of the shell: which names are refused, and how values are stored and loaded.

A value is an encrypted document of the session; events and the record hold its keyed digest. A variable that decides which code
a program loads or runs (`LD_PRELOAD`, `BASH_ENV`, `GIT_*`) is refused: an approved command would do something else than the
person has read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import translate

import msgspec

from fidelio.errors import KeyRingProblem, RecordMismatch, ToolRefused
from fidelio.ledger.model import NewEvent, PutDocument
from fidelio.runtime import events as e
from fidelio.runtime.durable_shell import ShellRecord
from fidelio.runtime.secrets import compute_keyed_digest, matches_keyed_digest, needs_reseal, open_sealed, seal
from fidelio.runtime.tools.model import ToolCall, event
from fidelio.tokens.keyring import KeyRing

PURPOSE = "shell"
MAX_VARIABLES = 100
MAX_VALUE = 32_768
MAX_NAME = 200
REFUSED = (
    *("LD_*", "PYTHON*", "BASH_*", "BASHOPTS", "ENV", "PATH", "HOME", "IFS", "PS4", "PROMPT_COMMAND", "SHELLOPTS", "GIT_*"),
    *("NODE_OPTIONS", "PERL5*", "RUBY*", "*PAGER", "EDITOR", "VISUAL", "FIDELIO_*", "GLIBC_TUNABLES", "GCONV_PATH"),
    *("LESSOPEN", "LESSCLOSE"),
    # Bash expands or evaluates their values, in a shell where nobody sees it.
    *("PS?", "RANDOM", "SRANDOM", "SECONDS", "LINENO", "OPTIND", "OPTARG", "HIST*", "MAIL*", "TMOUT", "POSIXLY_CORRECT"),
    *("EXECIGNORE", "GLOBIGNORE", "CDPATH", "FIGNORE", "FUNCNEST", "INPUTRC", "EPOCH*", "DIRSTACK", "COMP_*", "READLINE_*"),
    # Programs read options or code from them.
    *("MAKEFILES", "MAKEFLAGS", "GNUMAKEFLAGS", "MFLAGS", "TAR_OPTIONS", "RIPGREP_CONFIG_PATH", "RSYNC_RSH", "NODE_PATH"),
    *("JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "RUSTC*", "CARGO_*", "GREP_OPTIONS", "LOCPATH", "NLSPATH"),
    *("LANGUAGE", "TERMINFO*", "TERMCAP", "CC", "CXX", "npm_config_*", "PIP_*", "PYTEST_*"),
)
# What the shell itself maintains for its own process.
_OF_THE_SHELL = frozenset({"_", "PWD", "OLDPWD", "SHLVL", "COLUMNS", "LINES"})
_REFUSED = re.compile("|".join(map(translate, REFUSED)))
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_NAME = re.compile(rf"[A-Za-z_][A-Za-z0-9_]{{0,{MAX_NAME - 1}}}", re.ASCII)


class StoredChange(msgspec.Struct, frozen=True):
    """A change of variables, to be committed at once: the event and the documents belong together."""

    events: tuple[NewEvent, ...] = ()
    documents: tuple[PutDocument, ...] = ()


class LoadedVariables(msgspec.Struct, frozen=True):
    """The values of the durable variables. `resealed` are the documents that an earlier key had sealed."""

    values: Mapping[str, str] = msgspec.field(default_factory=dict)
    resealed: tuple[PutDocument, ...] = ()


def is_refused(name: str) -> bool:
    return _REFUSED.match(name) is not None


def is_durable(name: str, value: str) -> bool:
    """Whether a variable that a command has exported can be durable."""
    is_name = _NAME.fullmatch(name) is not None and name not in _OF_THE_SHELL and not is_refused(name)
    return is_name and len(value) <= MAX_VALUE and _find_problem(value) is None


def check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ToolRefused(
            f"{name!r:.80} is not the name of a variable.",
            remedy=f"Use up to {MAX_NAME} letters, digits and '_', not beginning with a digit.",
            reason="invalid_variable",
        )
    if name in _OF_THE_SHELL or is_refused(name):
        raise ToolRefused(
            f"The variable {name} decides how programs run and cannot be kept.",
            remedy="Set it inside of the command that needs it; a person sees it there.",
            reason="refused_variable",
        )


def check_value(name: str, value: str) -> None:
    problem = _find_problem(value)
    if problem is not None:
        raise ToolRefused(f"The value of {name} contains {problem}.", remedy="Remove it.", reason="invalid_variable")


def check_count(shell: ShellRecord, name: str) -> None:
    if name not in shell.variables and len(shell.variables) >= MAX_VARIABLES:
        raise ToolRefused(
            f"This session has {MAX_VARIABLES} variables, which is the limit.",
            remedy="Remove one with shell_unset_env.",
            reason="too_many_variables",
        )


def _find_problem(value: str) -> str | None:
    found = _UNSTORABLE.search(value)
    if found is None:
        return None
    return "a NUL character, which no variable can hold" if found[0] == "\0" else "half of a character (a lone surrogate)"


def space_of(session: str) -> str:
    """The document space with the values of a session's variables."""
    return f"shell:{session}"


def _identify(session: str, name: str) -> str:
    # No session id contains a slash.
    return f"{session}/{name}"


def store_change(
    keys: KeyRing, session: str, changed: Mapping[str, str], unset: Iterable[str] = (), *, by_command: bool = False
) -> StoredChange:
    """Store new values and remove others; nothing if nothing changes."""
    removed = list(unset)
    if not changed and not removed:
        return StoredChange()
    digests = {name: compute_keyed_digest(keys, PURPOSE, _identify(session, name), value) for name, value in changed.items()}
    documents = [_seal_document(keys, session, name, value) for name, value in changed.items()]
    documents += [PutDocument(space=space_of(session), path=name, text=None, author="agent") for name in removed]
    body = {"set": digests, "unset": removed, "by_command": by_command}
    return StoredChange((event(e.SHELL_ENV, body),), tuple(documents))


def _seal_document(keys: KeyRing, session: str, name: str, value: str) -> PutDocument:
    sealed = seal(keys, PURPOSE, _identify(session, name), value)
    return PutDocument(space=space_of(session), path=name, text=sealed, author="agent")


async def load_variables(call: ToolCall) -> LoadedVariables:
    """Load the values of all durable variables of the session."""
    names = call.record.shell.variables
    if not names:
        return LoadedVariables()
    keys, session, values, resealed = call.context.open_keys(), call.session.id, {}, []
    for name, digest in names.items():
        found = await call.context.ledger.document(space_of(session), name)
        sealed = "" if found is None else found.text or ""
        values[name] = _open_value(keys, session, name, digest, sealed)
        if needs_reseal(keys, sealed):
            resealed.append(_seal_document(keys, session, name, values[name]))
    return LoadedVariables(values, tuple(resealed))


def _open_value(keys: KeyRing, session: str, name: str, digest: str, sealed: str) -> str:
    try:
        value = open_sealed(keys, PURPOSE, _identify(session, name), sealed)
    except (KeyRingProblem, RecordMismatch) as error:
        raise ToolRefused(
            f"The value of the variable {name} cannot be opened: {error.sentence}",
            remedy="Set it again with shell_set_env, or remove it with shell_unset_env.",
            reason="variable_unavailable",
        ) from error
    # The digest is in the chained events, so an earlier value that was put back is found.
    if not matches_keyed_digest(keys, PURPOSE, _identify(session, name), value, digest):
        raise ToolRefused(
            f"The stored value of {name} is not the one on record: another call is changing it, or it was put back.",
            remedy="Call again. If it stays, set it again with shell_set_env.",
            reason="variable_unavailable",
            retryable=True,
        )
    return value


class ExportedVariables(msgspec.Struct, frozen=True):
    """What a command has exported beyond the variables of the sandbox, and the digests of the durable ones that it got."""

    exported: Mapping[str, str]
    received: Mapping[str, str]


def find_changed(keys: KeyRing, session: str, shell: ShellRecord, seen: ExportedVariables) -> dict[str, str]:
    """The variables that the command changed, at most as many as a session may have.

    One that another call has changed since the command began stays as that call wants it.
    """
    changed: dict[str, str] = {}
    for name, value in sorted(seen.exported.items()):
        digest = seen.received.get(name)
        if not is_durable(name, value) or shell.variables.get(name) != digest:
            continue
        if digest is None:
            is_new = len(shell.variables) + len(changed) < MAX_VARIABLES
        else:
            is_new = not matches_keyed_digest(keys, PURPOSE, _identify(session, name), value, digest)
        if is_new:
            changed[name] = value
    return changed


def find_unset(shell: ShellRecord, seen: ExportedVariables) -> list[str]:
    """The variables that the command got and has not left."""
    received = seen.received.items()
    return [name for name, digest in received if name not in seen.exported and shell.variables.get(name) == digest]


def list_temporary(exported: Mapping[str, str]) -> Iterator[str]:
    """The exported variables that end with the live shell, for the caller to know."""
    return (name for name, value in sorted(exported.items()) if name not in _OF_THE_SHELL and not is_durable(name, value))
