"""Durable variables: which are kept, where their values are, and who wins when several change one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.ledger.model import Change, PutDocument
from fidelio.runtime import events as e
from fidelio.runtime.shell.variables import MAX_VARIABLES, REFUSED, is_durable, space_of
from fidelio.tokens.keyring import FixedKeys
from tests.runtime.shell.double import ShellDouble
from tests.runtime.support import ToolBench, open_context, start_session
from tests.support import proves

SECRET = "hunter2-correct-horse"
REFUSED_NAMES = [
    *("LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONSTARTUP", "BASH_ENV", "BASH_FUNC_x", "ENV", "PATH", "HOME", "IFS"),
    *("PS4", "PROMPT_COMMAND", "SHELLOPTS", "BASHOPTS", "GIT_SSH_COMMAND", "GIT_DIR", "NODE_OPTIONS", "PERL5LIB", "RUBYOPT"),
    *("PAGER", "MANPAGER", "GIT_PAGER", "EDITOR", "VISUAL", "FIDELIO_HOME", "FIDELIO_KEY", "PWD", "OLDPWD", "SHLVL", "_"),
]


def stored_bytes(directory: Path) -> bytes:
    return b"".join(file.read_bytes() for file in directory.glob("ledger.db*"))


@proves("runtime.shell-variables")
@pytest.mark.parametrize("name", REFUSED_NAMES)
async def test_a_variable_that_decides_how_programs_run_is_refused(bench: ToolBench, name: str) -> None:
    set_error = await bench.refuse("shell_set_env", key=name, value="x")
    unset_error = await bench.refuse("shell_unset_env", key=name)

    assert set_error["code"] == unset_error["code"] == "refused_variable"
    assert (await bench.record()).shell.variables == {}


@proves("runtime.shell-variables")
@pytest.mark.parametrize("name", ["1A", "A B", "A=B", "é", "A\n", "a-b", "../x", "BASH_FUNC_x%%", "$(id)", "A;id", "ᴀ"])
async def test_what_is_no_name_of_a_variable_is_refused(bench: ToolBench, name: str) -> None:
    assert (await bench.refuse("shell_set_env", key=name, value="x"))["code"] == "invalid_variable"
    assert (await bench.refuse("shell_unset_env", key=name))["code"] == "invalid_variable"


@proves("runtime.shell-variables")
@pytest.mark.parametrize("value", [f"{SECRET}\0", f"{SECRET}\ud800"])
async def test_a_value_that_no_variable_can_hold_is_refused_without_repeating_it(bench: ToolBench, value: str) -> None:
    error = await bench.refuse("shell_set_env", key="TOKEN", value=value)

    assert error["code"] == "invalid_variable"
    assert SECRET not in error["message"]


@proves("runtime.shell-variables")
@pytest.mark.parametrize("value", ["$(id)", "a'b\"c", "line\nline", "\\", "ü", " ", "x" * 32_768, "`id`", "!!"])
async def test_every_other_value_reaches_the_command_unchanged(bench: ToolBench, sandbox: ShellDouble, value: str) -> None:
    await bench.use("shell_set_env", key="TOKEN", value=value)
    await bench.use("shell_exec", command="print x")
    await bench.use("shell_run", command="print x")
    await bench.use("bash", command="env")
    sent = dict(sandbox.calls)

    assert sent["exec_persistent_shell"]["setEnvironment"] == {"TOKEN": value}
    assert sent["run_shell"]["environment"] == sent["run_command"]["environment"] == {"TOKEN": value}


@proves("runtime.shell-values")
async def test_a_value_is_nowhere_but_in_its_encrypted_document(bench: ToolBench, tmp_path: Path) -> None:
    result = await bench.use("shell_set_env", key="TOKEN", value=SECRET)
    exported = await bench.use("shell_exec", command="print x")
    described = await bench.use("shell_describe")
    bodies = "".join(each.raw or "" for each in await bench.events())

    assert SECRET not in f"{result}{exported}{described}{bodies}"
    assert SECRET.encode() not in stored_bytes(tmp_path)
    assert described["env"] == {"count": 1, "keys": ["TOKEN"]}


@proves("runtime.shell-values")
async def test_a_value_that_was_exported_is_encrypted_too(bench: ToolBench, sandbox: ShellDouble) -> None:
    await bench.use("shell_exec", command="sleep")
    sandbox.finish(then=f"export TOKEN={SECRET}")
    await bench.use("shell_wait")
    document = await bench.context.ledger.document(space_of(bench.session), "TOKEN")
    (changed,) = await bench.events(e.SHELL_ENV)

    assert document is not None
    assert SECRET not in f"{document.text}{changed.raw}"
    assert changed.body["by_command"] is True
    assert (await bench.use("bash", command="env"))["output"]["stdout"] == f"TOKEN={SECRET}\n"


@proves("runtime.shell-values")
async def test_the_same_value_again_leaves_the_digest_as_it_is(bench: ToolBench) -> None:
    await bench.use("shell_set_env", key="TOKEN", value="one")
    first = (await bench.record()).shell.variables
    await bench.use("shell_set_env", key="TOKEN", value="one")
    same = (await bench.record()).shell.variables
    await bench.use("shell_set_env", key="TOKEN", value="two")

    assert first == same != (await bench.record()).shell.variables


@proves("runtime.secrets-rotated")
async def test_after_a_rotation_values_are_sealed_again_when_they_are_used(tmp_path: Path) -> None:
    async with open_context(tmp_path, ShellDouble()) as context:
        bench = await start_session(context, tmp_path)
        await bench.use("shell_set_env", key="TOKEN", value="one")
    rotated = FixedKeys(b"n" * 32, b"k" * 32)
    async with open_context(tmp_path, ShellDouble(), keys=rotated) as context:
        again = ToolBench(context, bench.session, bench.spec, bench.tools)
        await again.use("shell_exec", command="print x")
        resealed = await context.ledger.document(space_of(bench.session), "TOKEN")
        output = (await again.use("bash", command="env"))["output"]["stdout"]

    assert resealed is not None
    assert resealed.text is not None
    assert resealed.text.startswith(f"e1.{rotated.active().kid}.")
    assert output == "TOKEN=one\n"


@proves("runtime.shell-values")
async def test_without_its_key_a_value_refuses_commands_until_it_is_set_again(tmp_path: Path) -> None:
    async with open_context(tmp_path, ShellDouble()) as context:
        bench = await start_session(context, tmp_path)
        await bench.use("shell_set_env", key="TOKEN", value="one")
    async with open_context(tmp_path, ShellDouble(), keys=FixedKeys(b"n" * 32)) as context:
        again = ToolBench(context, bench.session, bench.spec, bench.tools)
        error = await again.refuse("shell_exec", command="print x")
        assert (error["code"], "TOKEN" in error["message"]) == ("variable_unavailable", True)
        assert await again.events(e.COMMAND_STARTED) == ()

        await again.use("shell_set_env", key="TOKEN", value="two")
        assert (await again.use("shell_run", command="env"))["output"]["stdout"].endswith("TOKEN=two\n")


@proves("runtime.shell-values")
async def test_an_earlier_value_that_was_put_back_is_not_used(bench: ToolBench) -> None:
    space, ledger = space_of(bench.session), bench.context.ledger
    await bench.use("shell_set_env", key="TOKEN", value="old")
    old = await ledger.document(space, "TOKEN")
    await bench.use("shell_set_env", key="TOKEN", value="new")
    assert old is not None
    await ledger.commit(Change(session=bench.session, documents=(PutDocument(space=space, path="TOKEN", text=old.text),)))

    error = await bench.refuse("shell_run", command="print x")

    assert error["code"] == "variable_unavailable"


@proves("runtime.shell-values")
async def test_the_value_of_another_session_does_not_open_here(bench: ToolBench, tmp_path: Path) -> None:
    other = await start_session(bench.context, tmp_path)
    await other.use("shell_set_env", key="TOKEN", value=SECRET)
    await bench.use("shell_set_env", key="TOKEN", value="mine")
    theirs = await bench.context.ledger.document(space_of(other.session), "TOKEN")
    assert theirs is not None
    stolen = PutDocument(space=space_of(bench.session), path="TOKEN", text=theirs.text)
    await bench.context.ledger.commit(Change(session=bench.session, documents=(stolen,)))

    error = await bench.refuse("bash", command="env")

    assert error["code"] == "variable_unavailable"
    assert SECRET not in error["message"]


@proves("runtime.shell-variables")
@pytest.mark.parametrize("name", ["LD_PRELOAD", "PATH", "PYTHONPATH", "GIT_DIR"])
async def test_an_export_of_a_refused_name_ends_with_the_live_shell(bench: ToolBench, sandbox: ShellDouble, name: str) -> None:
    result = await bench.use("shell_exec", command=f"export {name}=/evil; export FINE=1")
    sandbox.kill_shell()
    after = await bench.use("shell_exec", command="env")

    assert result["output"]["notKept"] == [name]
    assert (await bench.record()).shell.variables.keys() == {"FINE"}
    assert "/evil" not in after["output"]["stdout"]


@proves("runtime.shell-variables")
async def test_unset_in_the_shell_is_durable(bench: ToolBench, sandbox: ShellDouble) -> None:
    await bench.use("shell_set_env", key="COLOUR", value="blue")
    await bench.use("shell_exec", command="unset COLOUR")

    assert (await bench.record()).shell.variables == {}
    assert "COLOUR" not in (await bench.use("shell_exec", command="env"))["output"]["stdout"]
    document = await bench.context.ledger.document(space_of(bench.session), "COLOUR")
    assert document is not None
    assert document.text is None


@proves("runtime.shell-variables")
async def test_a_variable_that_was_removed_is_gone_from_the_live_shell_too(bench: ToolBench, sandbox: ShellDouble) -> None:
    await bench.use("shell_exec", command="export COLOUR=blue")
    result = await bench.use("shell_unset_env", key="COLOUR")
    listed = await bench.use("shell_exec", command="env")
    await bench.use("shell_exec", command="export COLOUR=red")

    assert (result["removed"], result["env"]["count"]) == (True, 0)
    assert "COLOUR" not in listed["output"]["stdout"]
    assert "COLOUR=red" in (await bench.use("shell_exec", command="env"))["output"]["stdout"]


@proves("runtime.shell-variables")
async def test_what_is_set_while_a_command_runs_is_not_undone_by_its_end(bench: ToolBench, sandbox: ShellDouble) -> None:
    await bench.use("shell_set_env", key="KEPT", value="old")
    await bench.use("shell_set_env", key="GONE", value="old")
    await bench.use("shell_exec", command="sleep")
    await bench.use("shell_set_env", key="KEPT", value="new")
    await bench.use("shell_set_env", key="ADDED", value="new")
    await bench.use("shell_unset_env", key="GONE")
    await bench.use("shell_set_cwd", path="/tmp")
    sandbox.finish(then="export MINE=1; cd /workspace/src")
    await bench.use("shell_wait")

    after = await bench.use("shell_exec", command="pwd; env")

    assert after["output"]["stdout"].splitlines() == [
        "/tmp",
        "ADDED=new",
        "HOME=/workspace",
        "KEPT=new",
        "MINE=1",
        "PATH=/usr/bin",
    ]


@proves("runtime.shell-variables")
async def test_callers_at_once_leave_value_and_digest_of_one_of_them(bench: ToolBench) -> None:
    await asyncio.gather(*(bench.use("shell_set_env", key="TOKEN", value=f"value {n}") for n in range(8)))

    output = (await bench.use("bash", command="env"))["output"]["stdout"]

    assert output in {f"TOKEN=value {n}\n" for n in range(8)}


@proves("runtime.shell-variables")
async def test_a_session_has_a_limited_number_of_variables(bench: ToolBench) -> None:
    exports = "; ".join(f"export V{n:03}=x" for n in range(MAX_VARIABLES + 20))
    await bench.use("shell_exec", command=exports)
    error = await bench.refuse("shell_set_env", key="ONE_MORE", value="x")
    await bench.use("shell_set_env", key="V000", value="changed")

    assert error["code"] == "too_many_variables"
    assert len((await bench.record()).shell.variables) == MAX_VARIABLES


@proves("runtime.shell-variables")
@given(st.text(max_size=40), st.text(max_size=40))
def test_nothing_durable_is_refused_or_unstorable(name: str, value: str) -> None:
    if is_durable(name, value):
        assert name.isascii()
        assert name.isidentifier()
        assert "\0" not in value
        value.encode()
        assert not any(name == pattern.strip("*") for pattern in REFUSED)
