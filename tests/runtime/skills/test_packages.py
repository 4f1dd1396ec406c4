"""Rules of uploaded skills: what they must have, and what no path, no archive and no size may do."""

from __future__ import annotations

import io
import stat
import tracemalloc
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.errors import UsageProblem
from fidelio.runtime.skills.packages import MAX_FILES, MAX_TOTAL, check_package, check_path, pack
from tests.support import proves

SKILL = b"---\nname: read-invoices\ndescription: Reads invoices.\n---\nLook at the total first.\n"


def skill(text: str) -> list[tuple[str, bytes]]:
    return [("read-invoices/SKILL.md", text.encode())]


@proves("skills.package")
def test_a_package_has_its_name_its_description_and_its_files() -> None:
    package = check_package([("folder/SKILL.md", SKILL), ("folder/scripts/sum.py", b"print(1)")])

    assert (package.name, package.description) == ("read-invoices", "Reads invoices.")
    assert package.files == {"SKILL.md": SKILL, "scripts/sum.py": b"print(1)"}
    assert check_package(skill("---\ndescription: d\n---\ntext")).name == "read-invoices"


@proves("skills.package")
@pytest.mark.parametrize(
    ("files", "words"),
    [
        ([], "0 files"),
        ([("SKILL.md", SKILL)], "top-level"),
        ([("a/SKILL.md", SKILL), ("b/x", b"")], "top-level"),
        ([("a/skill.md", SKILL)], "no SKILL.md"),
        ([("a/b/SKILL.md", SKILL)], "no SKILL.md"),
        (skill("no front matter"), "front matter"),
        (skill("---\nname: [\n---\ntext"), "cannot be read"),
        ([("a/SKILL.md", b"\xff\xfe\x00")], "cannot be read"),
        (skill("---\nname: Not A Slug\ndescription: d\n---\ntext"), "not a name"),
        (skill("---\nname: ../up\ndescription: d\n---\ntext"), "not a name"),
        (skill("---\nname: 7\ndescription: d\n---\ntext"), "not a name"),
        (skill("---\nname: a\n---\ntext"), "description"),
        (skill("---\nname: a\ndescription: [1]\n---\ntext"), "description"),
        (skill("---\nname: a\ndescription: a <tag> in it\n---\ntext"), "description"),
        (skill("---\nname: a\ndescription: " + "d" * 1_025 + "\n---\ntext"), "1024"),
        (skill("---\nname: a\ndescription: d\n---\n   \n"), "no text"),
        (skill("---\nname: a\ndescription: d\n---\n" + "x" * (257 << 10)), "bytes"),
        ([("a/SKILL.md", SKILL), ("a/SKILL.md", SKILL)], "twice"),
        ([("a/SKILL.md", SKILL), ("a/x", b""), ("a/x/y", b"")], "both a file and a directory"),
        ([("a/SKILL.md", SKILL), *((f"a/{number}", b"") for number in range(MAX_FILES))], str(MAX_FILES)),
        ([("a/SKILL.md", SKILL), ("a/large", b"x" * MAX_TOTAL)], "limit of a skill"),
    ],
)
def test_what_is_no_skill_is_refused_with_the_reason(files: list[tuple[str, bytes]], words: str) -> None:
    with pytest.raises(UsageProblem, match=words):
        check_package(files)


@proves("skills.paths")
@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "a/../../x",
        "a/./x",
        "a//x",
        "a/",
        "C:\\x",
        "a\\..\\x",
        "a/\x00",
        "a/\n",
        "a/" + "x" * 101,
        "a/" * 9 + "b",
    ],
)
def test_a_path_that_could_lead_elsewhere_is_refused(path: str) -> None:
    with pytest.raises(UsageProblem, match="files"):
        check_path(path)


@proves("skills.paths")
@given(st.lists(st.sampled_from(["..", ".", "", "a", "b c", "ü"]) | st.text(max_size=5), max_size=6))
def test_a_path_that_is_taken_has_only_names(parts: list[str]) -> None:
    path = "/".join(parts)
    try:
        checked = check_path(path)
    except UsageProblem:
        return
    assert checked == path
    assert not {"", ".", ".."} & set(checked.split("/"))


def archive(*entries: tuple[str | zipfile.ZipInfo, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", method) as opened:
        for entry, content in entries:
            opened.writestr(entry, content)
    return target.getvalue()


@proves("skills.archive")
def test_an_archive_is_read_like_the_files_in_it() -> None:
    packed = archive(("a/", b""), ("a/SKILL.md", SKILL), ("a/x.txt", b"x"))

    assert check_package([("skill.zip", packed)]).files == {"SKILL.md": SKILL, "x.txt": b"x"}


@proves("skills.archive")
@pytest.mark.parametrize("name", ["../a/SKILL.md", "/a/SKILL.md", "a/../../SKILL.md", "a\\..\\..\\x"])
def test_no_name_in_an_archive_leads_elsewhere(name: str) -> None:
    with pytest.raises(UsageProblem, match="files"):
        check_package([("skill.zip", archive(("a/SKILL.md", SKILL), (name, b"x")))])


@proves("skills.archive")
def test_a_link_in_an_archive_is_refused() -> None:
    link = zipfile.ZipInfo("a/link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16

    with pytest.raises(UsageProblem, match="link"):
        check_package([("skill.zip", archive(("a/SKILL.md", SKILL), (link, b"/etc/passwd")))])


@proves("skills.archive")
def test_an_archive_that_unpacks_to_too_much_is_refused_whatever_it_declares() -> None:
    bomb = archive(("a/SKILL.md", SKILL), ("a/zeros", bytes(64 << 20)))
    lying = bomb.replace((64 << 20).to_bytes(4, "little"), (10).to_bytes(4, "little"))

    assert len(bomb) < 1 << 20
    tracemalloc.start()
    try:
        for packed in (bomb, lying):
            with pytest.raises(UsageProblem, match="archive"):
                check_package([("skill.zip", packed)])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # It stopped at the limit, and did not unpack everything first.
    assert peak < 4 * MAX_TOTAL
    with pytest.raises(UsageProblem, match=str(MAX_FILES)):
        check_package([("skill.zip", archive(*((f"a/{number}", b"") for number in range(MAX_FILES + 1))))])


@proves("skills.archive")
def test_a_damaged_archive_is_refused() -> None:
    packed = bytearray(archive(("a/SKILL.md", SKILL * 50), method=zipfile.ZIP_STORED))
    packed[60:80] = b"x" * 20

    with pytest.raises(UsageProblem, match="archive"):
        check_package([("skill.zip", bytes(packed))])


@proves("skills.archive")
@given(st.dictionaries(st.sampled_from(["x.txt", "b/c", "b/d", "e"]), st.binary(max_size=200)))
def test_what_was_packed_is_read_again(files: dict[str, bytes]) -> None:
    whole = {"SKILL.md": SKILL, **files}

    assert check_package([("any.zip", pack("read-invoices", whole))]).files == whole
    assert pack("read-invoices", whole) == pack("read-invoices", dict(reversed(whole.items())))
