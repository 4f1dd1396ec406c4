"""Homes and projects that another user of the machine could have written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fidelio.errors import ForeignHome, KeyRingProblem, TrustProblem
from fidelio.home import Home, find_home, load_user_trust, search_home
from fidelio.ownership import Allowance, find_path_problem
from fidelio.tokens.keyring import FileKeys
from tests.support import proves
from tests.support.users import NOBODY, needs_root, open_to_all, run_as_other_user


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A user without a named home, whose data directory is in the directory of the test."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return {"XDG_DATA_HOME": str(tmp_path / "data")}


@needs_root
@proves("cli.home-owner")
def test_a_home_that_another_user_plants_above_is_passed_over_and_stays_as_it_is(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    open_to_all(tmp_path)
    shared = tmp_path / "shared"
    work = shared / "work"
    work.mkdir(parents=True)
    # As /tmp: everybody may create entries, and only their owner may rename them.
    shared.chmod(0o1777)
    plant = (
        "base = pathlib.Path(sys.argv[1]) / '.fidelio'\n"
        "(base / 'agents').mkdir(parents=True)\n"
        "(base / 'agents' / 'echo.md').write_text('---\\nname: echo\\n---\\n')\n"
        "base.chmod(0o777)\n"
    )
    assert run_as_other_user(plant, str(shared)).returncode == 0
    before = sorted(shared.rglob("*"))

    search = search_home(environ=environ, cwd=work)
    search.home.ensure()
    FileKeys(search.home.keys).active()

    assert search.home.path == tmp_path / "data" / "fidelio"
    assert [place.path for place in search.passed_over] == [shared / ".fidelio"]
    (warning,) = map(str, search.warnings())
    assert "belongs to the user" in warning
    assert f"`fidelio trust {shared}`" in warning
    assert sorted(shared.rglob("*")) == before


@needs_root
@proves("cli.home-owner")
@pytest.mark.parametrize("what", ["", "keys.json", "ledger.db", "http-token", "agents", "workflows"])
def test_a_named_home_with_something_of_another_user_is_refused(tmp_path: Path, environ: dict[str, str], what: str) -> None:
    home = Home(tmp_path / "home").ensure()
    (home.path / what).touch() if what else None
    os.chown(home.path / what, NOBODY, NOBODY)

    for named in ({"path": home.path}, {"environ": {**environ, "FIDELIO_HOME": str(home.path)}}):
        with pytest.raises(ForeignHome, match=r"belongs to the user .*Correct its owner and mode.*fidelio trust"):
            find_home(**{"environ": environ, **named})  # type: ignore[arg-type]  # one of the two is another


@proves("cli.home-owner")
def test_a_named_home_that_every_user_can_write_is_refused_and_a_group_may(tmp_path: Path, environ: dict[str, str]) -> None:
    home = Home(tmp_path / "home").ensure()
    home.path.chmod(0o777)
    with pytest.raises(ForeignHome, match="can be written by every user"):
        find_home(home.path, environ=environ)

    home.path.chmod(0o770)
    assert find_home(home.path, environ=environ).path == home.path


@proves("cli.home-owner")
def test_a_project_in_which_everybody_can_exchange_the_home_is_passed_over(tmp_path: Path, environ: dict[str, str]) -> None:
    project = tmp_path / "project"
    (project / ".fidelio").mkdir(parents=True)
    project.chmod(0o777)
    open_project = search_home(environ=environ, cwd=project)
    project.chmod(0o1777)
    sticky = search_home(environ=environ, cwd=project)

    assert open_project.passed_over[0].problem == f"{project} can be written by every user"
    assert sticky.home.path == project / ".fidelio"


@needs_root
@proves("cli.home-owner")
@pytest.mark.parametrize("foreign", ["link", "target", "parent of the target"])
def test_a_link_is_judged_by_where_it_leads_and_who_made_it(tmp_path: Path, environ: dict[str, str], foreign: str) -> None:
    project, target = tmp_path / "project", tmp_path / "other" / "home"
    project.mkdir()
    target.mkdir(parents=True)
    (project / ".fidelio").symlink_to(target)
    assert search_home(environ=environ, cwd=project).home.path == project / ".fidelio"

    path = {"link": project / ".fidelio", "target": target, "parent of the target": target.parent}[foreign]
    os.chown(path, NOBODY, NOBODY, follow_symlinks=False)

    assert search_home(environ=environ, cwd=project).home.path == tmp_path / "data" / "fidelio"


@needs_root
@proves("cli.home-owner")
def test_under_root_the_user_who_called_sudo_is_accepted(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path / "home").ensure()
    os.chown(home.path, NOBODY, NOBODY)
    monkeypatch.setenv("SUDO_UID", str(NOBODY))

    assert find_home(home.path, environ=environ).path == home.path


@proves("cli.home-owner")
def test_a_name_in_sudo_uid_allows_nobody_and_another_user_cannot_use_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    monkeypatch.setenv("SUDO_UID", str(tmp_path.stat().st_uid))
    is_root = tmp_path.stat().st_uid == 0

    assert bool(find_path_problem(tmp_path)) is not is_root
    assert bool(find_path_problem(tmp_path, Allowance(tmp_path.stat().st_uid))) is False


@needs_root
@proves("cli.home-owner")
def test_keys_of_another_user_are_not_used_even_if_they_appear_after_the_check(tmp_path: Path, environ: dict[str, str]) -> None:
    del environ
    home = Home(tmp_path / "home").ensure()
    FileKeys(home.keys).active()
    os.chown(home.keys, NOBODY, NOBODY)

    with pytest.raises(KeyRingProblem, match="belongs to the user"):
        FileKeys(home.keys).active()


@needs_root
@proves("cli.home-owner")
def test_a_home_that_another_user_creates_first_is_refused(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    del environ
    home = Home(tmp_path / "home")

    create = Path.mkdir

    def create_first(path: Path, *_: object, **__: object) -> None:
        create(path)
        os.chown(path, NOBODY, NOBODY)

    monkeypatch.setattr(Path, "mkdir", create_first)
    with pytest.raises(ForeignHome, match="belongs to the user"):
        home.ensure()


@needs_root
@proves("trust.store")
def test_a_list_of_trust_that_another_user_could_have_written_is_not_believed(tmp_path: Path, environ: dict[str, str]) -> None:
    data = tmp_path / "data" / "fidelio"
    data.mkdir(parents=True)
    (data / "trust.json").write_text("{}")
    for path in (data / "trust.json", data):
        os.chown(path, NOBODY, NOBODY)
        with pytest.raises(TrustProblem, match="not believed"):
            load_user_trust(environ)
        os.chown(path, 0, 0)


@proves("trust.store")
@pytest.mark.parametrize("text", ["{", "[]", '{"directories": 1}', "\xff"])
def test_a_damaged_list_of_trust_is_an_error_with_a_remedy(tmp_path: Path, environ: dict[str, str], text: str) -> None:
    data = tmp_path / "data" / "fidelio"
    data.mkdir(parents=True)
    (data / "trust.json").write_text(text, "latin-1")

    with pytest.raises(TrustProblem, match=r"is damaged.*Delete it"):
        load_user_trust(environ)
