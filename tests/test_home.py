"""Where Fidelio keeps its things, and what can be set from outside."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from fidelio.definitions.library.search_path import open_library
from fidelio.errors import HomeProblem, UsageProblem
from fidelio.home import Home, find_home
from fidelio.settings import load_settings
from tests.support import proves


@proves("cli.home")
def test_the_home_asked_for_wins_over_everything(tmp_path: Path) -> None:
    (tmp_path / ".fidelio").mkdir()
    environ = {"FIDELIO_HOME": str(tmp_path / "env"), "XDG_DATA_HOME": str(tmp_path / "xdg")}

    assert find_home(tmp_path / "asked", environ=environ, cwd=tmp_path).path == tmp_path / "asked"
    assert find_home(environ=environ, cwd=tmp_path).path == tmp_path / "env"


@proves("cli.home")
def test_the_nearest_directory_above_is_found(tmp_path: Path) -> None:
    (tmp_path / ".fidelio").mkdir()
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)

    assert find_home(environ={}, cwd=below).path == tmp_path / ".fidelio"


@proves("cli.home")
def test_the_user_directory_comes_last_and_a_relative_one_is_ignored(tmp_path: Path) -> None:
    assert find_home(environ={"XDG_DATA_HOME": str(tmp_path)}, cwd=tmp_path).path == tmp_path / "fidelio"
    assert find_home(environ={"XDG_DATA_HOME": "relative"}, cwd=tmp_path).path == Path.home() / ".local/share/fidelio"


@proves("cli.home")
def test_a_new_home_is_closed_to_others(tmp_path: Path) -> None:
    home = Home(tmp_path / "new" / "home").ensure()

    assert stat.S_IMODE(home.path.stat().st_mode) == 0o700


@proves("cli.home")
def test_a_home_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(HomeProblem, match=r"cannot be created: .*Choose another one with --home"):
        Home(tmp_path / "file" / "home").ensure()


@proves("cli.settings")
def test_settings_come_from_the_environment() -> None:
    environ = {
        "FIDELIO_HOME": "/h",
        "FIDELIO_SERVER_NAME": "conductor",
        "FIDELIO_SERVER_VERSION": "9.9.9",
        "FIDELIO_MIN_RESPONSE_SECONDS": "0.25",
        "FIDELIO_ADOPTION": "off",
        "FIDELIO_LEDGER": "postgresql://somewhere/x",
    }
    settings = load_settings(environ=environ)

    assert (settings.server_name, settings.server_version) == ("conductor", "9.9.9")
    assert (settings.min_response_ms, settings.ledger) == (250, "postgresql://somewhere/x")
    assert settings.adoption is False


@proves("cli.settings")
@pytest.mark.parametrize("value", ["soon", "-1", "nan", "inf", "86401"])
def test_a_bad_setting_is_refused_with_the_allowed_values(value: str) -> None:
    with pytest.raises(UsageProblem, match=r"Give a number of seconds from 0 to 86400"):
        load_settings(environ={"FIDELIO_HOME": "/h", "FIDELIO_MIN_RESPONSE_SECONDS": value})


@proves("cli.settings", "sessions.adoption-setting")
def test_a_switch_is_on_or_off() -> None:
    assert load_settings(environ={"FIDELIO_HOME": "/h"}).adoption is True
    with pytest.raises(UsageProblem, match=r"FIDELIO_ADOPTION is 'perhaps'\. Say on or off"):
        load_settings(environ={"FIDELIO_HOME": "/h", "FIDELIO_ADOPTION": "perhaps"})


@proves("cli.surroundings")
def test_a_user_without_a_home_is_told_to_name_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def unknown(number: int) -> None:
        raise KeyError(number)

    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", unknown)

    with pytest.raises(HomeProblem, match=r"has no home directory.*FIDELIO_HOME"):
        find_home(environ={}, cwd=tmp_path)
    assert find_home(environ={"FIDELIO_HOME": str(tmp_path)}, cwd=tmp_path).path == tmp_path
    assert open_library(Home(tmp_path)).roots[-1].path == tmp_path / "workflows"


@proves("cli.surroundings")
def test_the_home_of_nobody_is_refused() -> None:
    with pytest.raises(HomeProblem, match=r"there is no such user"):
        find_home("~nobody-of-this-name/fidelio")


@proves("cli.ledger-address")
@pytest.mark.parametrize("address", ["ledger.db", "/var/lib/a b.db", "postgres://h/x", "postgresql://u:p@h/x"])
def test_paths_and_addresses_of_postgresql_are_taken(address: str) -> None:
    expected = str(Path.cwd() / address) if address == "ledger.db" else address

    assert load_settings(environ={"FIDELIO_HOME": "/h", "FIDELIO_LEDGER": address}).ledger == expected
