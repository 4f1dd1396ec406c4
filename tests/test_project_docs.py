"""The reference says what the commands say, and says it of all of them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from fidelio.errors import FidelioError
from scripts import generate_cli_docs as generator
from scripts import generate_escapes_docs, generate_tools_docs
from tests.support import proves

VARIABLE = re.compile(r"\bFIDELIO_[A-Z_]+\b")
TEST_CELL = re.compile(r"`(?P<file>[\w/]+\.py)::(?P<name>\w+)` \|$")
COMMANDS = list(generator.commands())


@proves("project.cli-reference")
def test_the_command_line_reference_is_up_to_date() -> None:
    assert generator.PAGE.read_text("utf-8") == generator.render(), "docs/reference/cli.md is stale: run `make docs`"


@proves("project.tool-reference")
def test_the_tool_reference_is_up_to_date() -> None:
    page = generate_tools_docs.PAGE.read_text("utf-8")

    assert page == generate_tools_docs.render(), "docs/reference/tools.md is stale: run `make docs`"


@proves("project.tool-reference")
def test_the_table_of_escape_attempts_is_up_to_date() -> None:
    page = generate_escapes_docs.PAGE.read_text("utf-8")

    assert page == generate_escapes_docs.render(), "docs/reference/escapes.md is stale: run `make docs`"


@proves("project.cli-reference")
@pytest.mark.parametrize("context", COMMANDS, ids=lambda context: context.command_path)
def test_a_command_and_its_options_say_what_they_are_for(context: click.Context) -> None:
    assert context.command.help
    silent = [
        option.name for option in context.command.get_params(context) if isinstance(option, click.Option) and not option.help
    ]

    assert silent == []


@proves("project.exit-codes")
@pytest.mark.parametrize("error", list(generator.error_classes()), ids=lambda error: error.__name__)
def test_an_error_and_its_exit_code_are_documented(error: type[FidelioError]) -> None:
    assert error.exit_code in generator.MEANINGS
    assert error.__doc__
    assert f"| `{error.code}` | {error.exit_code} |" in generator.PAGE.read_text("utf-8")


@proves("project.exit-codes")
def test_no_two_errors_share_a_code() -> None:
    codes = [error.code for error in generator.error_classes()]

    assert sorted(codes) == sorted(set(codes))


@proves("project.settings-documented")
def test_the_settings_page_names_exactly_the_variables_that_are_read() -> None:
    sources = (generator.ROOT / "src").rglob("*.py")
    read = {name for file in sources for name in VARIABLE.findall(file.read_text("utf-8"))}
    page = (generator.ROOT / "docs" / "reference" / "settings.md").read_text("utf-8")

    assert set(VARIABLE.findall(page)) == read


@proves("project.threat-model")
def test_every_row_of_the_threat_model_names_a_test_that_exists() -> None:
    page = (generator.ROOT / "docs" / "concepts" / "threat-model.md").read_text("utf-8")
    rows = [line for line in page.splitlines() if line.startswith("|") and not line.startswith(("| attempt", "|---"))]
    named = [TEST_CELL.search(row) for row in rows]

    assert rows
    assert [row for row, test in zip(rows, named, strict=True) if test is None] == []
    assert [test[0] for test in named if test is not None and not _exists(test["file"], test["name"])] == []


def _exists(file: str, name: str) -> bool:
    path = generator.ROOT / "tests" / file
    return path.is_file() and f"def {name}(" in path.read_text("utf-8")


CODE = re.compile(r"```\w*\n(?P<block>.*?)```|`(?P<span>[^`\n]+)`", re.DOTALL)
FIRST_WORDS = re.compile(r"^(?:\$ )?(?:\.venv/bin/)?fidelio (?P<rest>[a-z-][^#\n]*)", re.MULTILINE)
PAGES = [generator.ROOT / "README.md", generator.ROOT / "SECURITY.md", *sorted((generator.ROOT / "docs").rglob("*.md"))]


@proves("project.pages")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(generator.ROOT)))
def test_every_command_and_option_in_a_page_exists(page: Path) -> None:
    code = (match["block"] or match["span"] for match in CODE.finditer(page.read_text("utf-8")))
    lines = [found["rest"] for text in code for found in FIRST_WORDS.finditer(text)]

    assert [line for line in lines if _find_unknown_word(_split(line))] == []


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:
        # The quotation goes on in the next line.
        return line.partition("'")[0].partition('"')[0].split()


def _find_unknown_word(words: list[str]) -> str:
    """The first word that is neither a command nor an option where it stands; empty if there is none."""
    command: click.Command = COMMANDS[0].command
    flags = _list_flags(command)
    for word in words:
        name = word.rstrip(".,;:)")
        if name == "--":
            return ""
        if name.startswith("-"):
            if name.partition("=")[0] not in flags:
                return name
        elif isinstance(command, click.Group):
            if name.isupper() or (flags >= {"--home"} and name.startswith(("/", ".", "~"))):
                continue
            if (inner := command.get_command(click.Context(command), name)) is None:
                return name
            command = inner
            flags |= _list_flags(command)
    return ""


def _list_flags(command: click.Command) -> set[str]:
    options = command.get_params(click.Context(command))
    return {flag for option in options if isinstance(option, click.Option) for flag in (*option.opts, *option.secondary_opts)}
