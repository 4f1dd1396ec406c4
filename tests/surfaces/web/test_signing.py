"""Signing on the page: permissions, the way from the printed link to where passkeys work, and reports that rely on a key."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import httpx2
import pytest
from playwright.async_api import expect

from fidelio.app.passkeys import PersonKey
from fidelio.app.person_keys import PersonKeys
from fidelio.ledger.model import Request
from fidelio.runtime.calls import Finished, WaitingForPerson
from fidelio.runtime.service import RuntimeService, SessionRequest
from fidelio.surfaces.web.access import SIGN_IN_PATH
from tests.support import proves
from tests.support.command_line import run_fidelio
from tests.support.passkeys import SoftwareKey, register_key
from tests.surfaces.web.conftest import Site, read_form_token
from tests.surfaces.web.test_passkeys import Desk, application, at_localhost, confirm, desk, question, register

__all__ = ["application", "desk", "question"]

RUN = {"command": "make release"}
Command = Callable[..., CompletedProcess[str]]


@pytest.fixture
def command(site: Site, tmp_path: Path) -> Command:
    """Runs a command on the home of the site."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FIDELIO_")}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    environ = {**kept, "PATH": path, "COLUMNS": "200", "FIDELIO_HOME": str(site.application.settings.home.path)}

    def run(*arguments: str, **changes: str) -> CompletedProcess[str]:
        return run_fidelio(arguments, environ={**environ, **changes}, directory=tmp_path)

    return run


class SignedCall:
    """A call of a tool that waits for a signed yes."""

    def __init__(self, service: RuntimeService, session: str, request: str) -> None:
        self._service, self.session, self.request = service, session, request

    async def repeat(self) -> Finished | WaitingForPerson:
        return await self._service.call(self.session, "shell_run", RUN, waits=False)


@pytest.fixture
async def call(site: Site, tmp_path: Path) -> SignedCall:
    service = await site.application.runtime()
    session = await service.open_session(SessionRequest(project=str(tmp_path)))
    await service.set_policy(session, "shell_run", "proven", by="person:me")
    waiting = await service.call(session, "shell_run", RUN, waits=False)
    assert isinstance(waiting, WaitingForPerson)
    return SignedCall(service, session, waiting.request)


@pytest.fixture
async def key(site: Site) -> tuple[SoftwareKey, PersonKey]:
    key = SoftwareKey("a key <b>")
    return key, await register_key((await site.application.runtime()).context, key)


async def find(site: Site, request: str) -> Request:
    return await (await site.application.inbox()).find(request)


@proves("web.proven-permission")
async def test_a_permission_is_allowed_with_a_passkey(site: Site, call: SignedCall, desk: Desk) -> None:
    page = await desk()
    await confirm(site, await register(site, page))
    await page.goto(f"{at_localhost(site)}/inbox/{call.request}")
    await page.get_by_role("button", name="Allow it once").click()
    await expect(page.get_by_role("status")).to_contain_text("proven")

    closed = await find(site, call.request)
    assert (closed.answer, closed.assurance, closed.channel) == ({"option": "allow"}, "proven", "web")
    assert (await (await site.application.records()).verify(call.session)).problems == ()


@proves("web.proven-permission")
async def test_a_permission_is_denied_without_a_passkey(site: Site, call: SignedCall, desk: Desk) -> None:
    page = await desk()
    await page.goto(f"{at_localhost(site)}/inbox/{call.request}")
    await page.get_by_role("button", name="Deny it").click()
    await expect(page.get_by_role("status")).to_contain_text("Answered with Deny it")

    assert ((await find(site, call.request)).assurance, (await find(site, call.request)).state) == ("local", "answered")
    denied = await call.repeat()
    assert isinstance(denied, Finished)
    assert denied.is_error


@proves("web.proven-permission", "runtime.proven")
async def test_forms_without_a_signature_allow_nothing(site: Site, call: SignedCall) -> None:
    async with site.visit() as client:
        token = await read_form_token(client)
        alone = await client.post(f"/inbox/{call.request}", data={"form_token": token, "option": "allow"})
        picked = {"form_token": token, "decision": "allow", f"pick-{call.request}": "on"}
        together = await client.post("/inbox", data=picked)

    assert (alone.status_code, "is not signed" in alone.text) == (403, True)
    assert "is not signed" in together.text
    assert (await find(site, call.request)).state == "open"
    assert isinstance(await call.repeat(), WaitingForPerson)


@proves("web.named-host")
async def test_from_the_printed_link_a_passkey_is_registered_without_typing_an_address(site: Site, desk: Desk) -> None:
    page = await desk()
    await page.context.clear_cookies()
    await page.goto(site.link())
    await page.get_by_role("link", name="Passkeys").click()
    await page.get_by_role("link", name="Go on at localhost").click()
    await page.get_by_label("Its name").fill("laptop")
    await page.get_by_role("button", name="Register").click()

    await expect(page.locator(".command")).to_contain_text("fidelio passkeys confirm")
    assert page.url == f"{at_localhost(site)}/passkeys"


@proves("web.named-host")
async def test_a_question_at_the_printed_address_leads_to_where_it_can_be_signed(
    site: Site, question: Request, desk: Desk
) -> None:
    page = await desk()
    await confirm(site, await register(site, page))
    await page.context.clear_cookies()
    await page.goto(site.link(f"/inbox/{question.id}"))
    await page.get_by_role("button", name="Release it").click()
    await expect(page).to_have_url(f"{at_localhost(site)}/inbox/{question.id}")
    await page.get_by_role("button", name="Release it").click()
    await expect(page.get_by_role("status")).to_contain_text("proven")


@proves("web.named-host")
@pytest.mark.parametrize("target", ["//evil.example/", "https://evil.example", "/\\evil.example"])
async def test_the_way_to_localhost_leads_nowhere_else(site: Site, target: str) -> None:
    async with site.visit() as client, httpx2.AsyncClient(base_url=at_localhost(site)) as there:
        led = await client.get("/passkeys/at-localhost", params={"next": target}, follow_redirects=False)
        address = led.headers["location"]
        signed_in = await there.get(address)
        again = await there.get(address)

    assert address.startswith(f"{at_localhost(site)}{SIGN_IN_PATH}?key=")
    assert "evil" not in address
    assert (signed_in.headers["location"], again.status_code) == ("/", 403)


@proves("web.named-host")
async def test_a_link_on_another_site_finds_who_is_signed_in(site: Site, question: Request) -> None:
    """A browser sends the cookie with what this page asks for, not with what the other site has led to."""
    elsewhere, here = {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-origin"}
    refresh = f'http-equiv="refresh" content="0;url=/inbox/{question.id}"'
    async with httpx2.AsyncClient(base_url=site.url) as client:
        asked = await client.get(SIGN_IN_PATH, params={"next": f"/inbox/{question.id}"}, headers=elsewhere)
        again = await client.get(SIGN_IN_PATH, params={"next": f"/inbox/{question.id}"}, headers=here)
        link = site.link(f"/inbox/{question.id}")
        signed_in = await client.get(link, headers=elsewhere)
        refused = await client.get(link, headers=elsewhere)
        shown = await client.get(f"/inbox/{question.id}")

    assert (asked.status_code, refresh in asked.text) == (401, True)
    assert (again.status_code, "refresh" in again.text) == (401, False)
    assert (signed_in.status_code, refresh in signed_in.text) == (200, True)
    assert (refused.status_code, "refresh" in refused.text) == (403, False)
    assert shown.status_code == 200


@proves("web.key-report")
async def test_every_report_on_a_signed_answer_shows_the_key_and_how_it_was_registered(
    site: Site, question: Request, key: tuple[SoftwareKey, PersonKey], command: Command, tmp_path: Path
) -> None:
    software, registered = key
    proof = software.sign_answer(question, "yes")
    await (await site.application.inbox()).answer(question.id, "yes", by="person:me", channel="web", proof=proof)
    async with site.visit() as client:
        page = (await client.get(f"/sessions/{question.session}/report")).text
        timeline = (await client.get(f"/sessions/{question.session}")).text
        file = (await client.get(f"/sessions/{question.session}/file")).text
    printed, listed = command("report", question.session), command("report", question.session, "--json")
    written = command("report", question.session, "--html", str(tmp_path / "shared.html"))

    assert (printed.returncode, listed.returncode, written.returncode) == (0, 0, 0), printed.stderr
    for report in (page, file, printed.stdout, (tmp_path / "shared.html").read_text()):
        assert registered.fingerprint in report
        assert "confirmed with a terminal" in report
    assert f"fidelio verify {question.session}</code> checks them" in file
    assert "a key <b>" not in page
    assert "a key <b>" not in file
    assert f"signed with the key {registered.fingerprint}" in timeline
    (found,) = json.loads(listed.stdout)["keys"]
    assert (found["fingerprint"], found["by"], found["state"]) == (registered.fingerprint, "person:ada", "registered")


@proves("web.key-report", "runtime.proven-report")
async def test_the_report_of_a_runtime_session_shows_the_key(
    site: Site, call: SignedCall, key: tuple[SoftwareKey, PersonKey], command: Command
) -> None:
    software, registered = key
    proof = software.sign_answer(await find(site, call.request), "allow")
    await (await site.application.inbox()).answer(call.request, "allow", by="person:me", channel="web", proof=proof)
    async with site.visit() as client:
        page = await client.get(f"/sessions/{call.session}/report")
        file = await client.get(f"/sessions/{call.session}/file")
    printed, listed = command("report", call.session), command("report", call.session, "--json")

    assert (page.status_code, file.status_code, printed.returncode) == (200, 200, 0)
    for report in (page.text, file.text, printed.stdout):
        assert registered.fingerprint in report
        assert "confirmed with a terminal" in report
    (approval,) = json.loads(listed.stdout)["approvals"]
    assert (approval["demanded"], approval["fingerprint"]) == ("proven", registered.fingerprint)


@proves("web.key-report")
async def test_a_report_shows_that_a_key_was_replaced_and_old_answers_stay_proven(
    site: Site, question: Request, key: tuple[SoftwareKey, PersonKey], command: Command
) -> None:
    software, registered = key
    proof = software.sign_answer(question, "yes")
    await (await site.application.inbox()).answer(question.id, "yes", by="person:me", channel="web", proof=proof)
    keys = PersonKeys((await site.application.runtime()).context)
    new = SoftwareKey("new").create()
    await keys.request(new, by="person:me")
    await keys.confirm_by_key(new.id, software.sign_key(new), by="person:me")
    removed = command("passkeys", "remove", registered.fingerprint[:8])
    report, verified = command("report", question.session), command("verify", question.session)

    assert (removed.returncode, verified.returncode) == (0, 0), verified.stdout
    assert "removed" in report.stdout
    (left,) = await keys.list()
    assert left.confirmed_with == f"the key {registered.fingerprint}"


@proves("inbox.proven")
async def test_an_answer_stays_proven_when_its_question_is_erased(
    site: Site, question: Request, key: tuple[SoftwareKey, PersonKey]
) -> None:
    records, proof = await site.application.records(), key[0].sign_answer(question, "yes")
    await (await site.application.inbox()).answer(question.id, "yes", by="person:me", channel="web", proof=proof)
    (opened,) = await records.events(question.session, types=("checkpoint.yielded",))
    await records.redact(question.session, [opened.seq], actor="person:me", reason="private")

    erased = await find(site, question.id)
    assert (erased.question, erased.options, erased.assurance) == ("", (), "proven")
    assert (await records.verify(question.session)).problems == ()


@proves("web.key-terminal")
async def test_an_agent_confirms_and_removes_no_key(site: Site, key: tuple[SoftwareKey, PersonKey], command: Command) -> None:
    keys = PersonKeys((await site.application.runtime()).context)
    code = await keys.request(SoftwareKey("agent").create(), by="agent:x")
    agent = {"FIDELIO_AGENT": "s_000000000000.1"}
    confirmed, removed = (
        command("passkeys", "confirm", code, **agent),
        command("passkeys", "remove", key[1].fingerprint, **agent),
    )

    assert (confirmed.returncode, removed.returncode) == (2, 2)
    assert "below an agent" in confirmed.stderr
    assert sorted(each.state for each in await keys.list()) == ["registered", "requested"]


@proves("cli.proven")
async def test_the_command_line_demands_a_signature_and_takes_a_denial(site: Site, call: SignedCall, command: Command) -> None:
    inbox, refused = command("inbox"), command("answer", call.request, "allow")
    policy = command("sandbox", "policy", "--session", call.session, "write", "proven")
    denied = command("answer", call.request, "deny")

    assert "signed with a registered key" in inbox.stdout
    assert f"answer {call.request} deny" in inbox.stdout
    assert (refused.returncode, "not signed" in refused.stderr) == (1, True), refused.stderr
    assert (policy.returncode, "is proven" in policy.stdout) == (0, True), policy.stderr
    assert (denied.returncode, (await find(site, call.request)).answer["option"]) == (0, "deny"), denied.stderr
