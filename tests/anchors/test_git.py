"""Anchors in git tags and notes, also in a repository whose configuration is hostile."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from fidelio.anchors.service import AnchorService
from fidelio.errors import AnchorProblem
from fidelio.ledger import Ledger
from tests.anchors.conftest import problems, verify
from tests.support import proves
from tests.support.ledgers import say, start
from tests.support.parts import require_part

IDENTITY = ("-c", "user.name=x", "-c", "user.email=x@localhost")


def git(directory: Path, *arguments: str, content: str = "") -> str:
    command = ["git", *IDENTITY, "-C", str(directory), *arguments]
    return subprocess.run(command, input=content, check=True, capture_output=True, text=True, timeout=60).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    if shutil.which("git") is None:
        require_part("git", "Install git.")
    path = tmp_path / "repository"
    path.mkdir()
    git(path, "init", "--quiet")
    git(path, "commit", "--quiet", "--allow-empty", "-m", "First")
    return path


@proves("anchors.git")
async def test_tags_are_a_series_of_annotated_tags(ledger: Ledger, service: AnchorService, repository: Path) -> None:
    await start(ledger, "a")
    places = []
    for number in range(3):
        await say(ledger, "a", {"number": number})
        places.append((await service.create(f"git:{repository}:tags/audit/main")).location)
    git(repository, "tag", "audit/main-other")
    whole = await verify(service, f"git:{repository}:tags/audit/main")
    one = await verify(service, f"git:{repository}:tags/audit/main-2")
    git(repository, "tag", "-d", "audit/main-2")
    with_gap = await verify(service, f"git:{repository}:tags/audit/main")

    assert places == [f"git:tags/audit/main-{number}" for number in (1, 2, 3)]
    assert (whole.holds, len(whole.anchors), one.holds, len(one.anchors)) == (True, 3, True, 1)
    assert (with_gap.holds, len(with_gap.gaps)) == (False, 1)
    assert "Anchor 3 of 1 sessions" in git(repository, "for-each-ref", "--format=%(contents)", "refs/tags/audit/main-3")


@proves("anchors.git")
async def test_notes_keep_every_anchor_in_their_history(ledger: Ledger, service: AnchorService, repository: Path) -> None:
    await start(ledger, "a")
    target = f"git:{repository}:notes/audit"
    for number in range(3):
        await say(ledger, "a", {"number": number})
        await service.create(target)
    git(repository, "commit", "--quiet", "--allow-empty", "-m", "Second")
    await service.create(target)
    verdicts = await verify(service, target)

    assert (verdicts.holds, problems(verdicts)) == (True, [])
    assert [verdict.number for verdict in verdicts.anchors] == [1, 2, 3, 4]
    assert git(repository, "notes", "--ref=audit", "show").startswith('{"format":"fidelio.anchor"')


@proves("anchors.git")
async def test_the_repository_of_the_working_directory_is_the_default(
    service: AnchorService, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository)
    await service.create("git:tags/audit")

    assert git(repository, "tag") == "audit-1\n"


@proves("anchors.git")
async def test_nothing_that_a_repository_configures_is_run(
    service: AnchorService, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker, evil = tmp_path / "was-run", tmp_path / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {marker}\n")
    evil.chmod(0o755)
    hooks = repository / ".git" / "hooks"
    for name in ("reference-transaction", "post-commit", "pre-commit", "prepare-commit-msg", "post-rewrite"):
        shutil.copy(evil, hooks / name)
    programs = (
        "core.pager",
        "core.editor",
        "sequence.editor",
        "core.fsmonitor",
        "gpg.program",
        "core.sshCommand",
        "diff.external",
    )
    settings = dict.fromkeys(programs, str(evil)) | {
        "core.hooksPath": str(hooks),
        "core.alternateRefsCommand": str(evil),
        "alias.mktag": f"!{evil}",
        "alias.hash-object": f"!{evil}",
        "tag.gpgSign": "true",
        "commit.gpgSign": "true",
        "filter.evil.clean": str(evil),
        "extensions.partialClone": "origin",
        "remote.origin.url": f"ext::{evil}",
        "remote.origin.promisor": "true",
        "protocol.ext.allow": "always",
        "gc.auto": "1",
    }
    for name, value in settings.items():
        git(repository, "config", name, value)
    (repository / ".git" / "info" / "attributes").write_text("* filter=evil\n")
    # Variables of a git that runs Fidelio, such as that of a hook, must not redirect the commands.
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", str(evil))
    for kind in ("tags", "notes"):
        for _ in range(2):
            await service.create(f"git:{repository}:{kind}/audit")
    verdicts = await verify(service, f"git:{repository}:tags/audit", f"git:{repository}:notes/audit")

    assert (verdicts.holds, len(verdicts.anchors)) == (True, 4)
    assert not marker.exists()


@proves("anchors.git")
async def test_a_tag_is_never_replaced_and_a_missing_repository_is_a_clear_error(
    service: AnchorService, repository: Path, tmp_path: Path
) -> None:
    git(repository, "tag", "audit-1")
    before = git(repository, "rev-parse", "audit-1")
    with pytest.raises(AnchorProblem, match="git update-ref failed"):
        await service.create(f"git:{repository}:tags/audit")
    with pytest.raises(AnchorProblem, match="git rev-parse failed"):
        await service.create(f"git:{tmp_path}:tags/audit")
    with pytest.raises(AnchorProblem, match="There is no anchor in"):
        await verify(service, f"git:{repository}:tags/other")
    with pytest.raises(AnchorProblem, match="git rev-list failed"):
        await verify(service, f"git:{repository}:notes/other")

    assert git(repository, "rev-parse", "audit-1") == before


@proves("anchors.git", "anchors.format")
async def test_a_tag_of_something_else_is_a_clear_error(service: AnchorService, repository: Path) -> None:
    git(repository, "tag", "audit-1", "HEAD")
    blob = git(repository, "hash-object", "-w", "--stdin", content="x").strip()
    git(repository, "tag", "blob-1", blob)
    with pytest.raises(AnchorProblem, match="git cat-file failed"):
        await verify(service, f"git:{repository}:tags/audit")
    with pytest.raises(AnchorProblem, match="refs/tags/blob-1 holds no valid anchor"):
        await verify(service, f"git:{repository}:tags/blob")
