"""Where moves are enforced, an agent that does what is written and reports what it finds comes to the end, on every route.

And nobody is overruled on the way: no number of refusals leads on, and no package begins with what became of another one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from fidelio.settings import Settings, load_settings
from tests.bundled.agent import Agent, Life
from tests.bundled.reading import BUNDLED, workflow
from tests.dialects.conftest import Player, playing
from tests.support import proves

Hire = Callable[[str, Life], Agent]

CHANGE = "https://forge.example/changes/7"
ONE_TASK = [{"title": "Retry", "kind": "code", "files": ["upload.py"], "done_when": "The test passes."}]
PACKAGES = [
    {"slug": name, "title": name, "issue": number, "depends_on": [], "size": "small", "route": "quick-fix"}
    for name, number in (("retry", "1"), ("resume", "2"), ("report", "3"))
]
# What happens in a work package where nothing goes wrong; the cases below say what does.
ANSWERS: dict[str, tuple[Any, ...]] = {
    "choose-route": ("full",),
    "confirm-requirements": ("confirmed",),
    "approve-design": ("approve",),
    "confirm-plan": ("proceed",),
    "answer-findings": ("repair",),
    "consent-to-merge": ("merge",),
}
FINDS: dict[str, tuple[Any, ...]] = {
    "work_slug": ("retry-failed-uploads",),
    "requirements_clear": (True,),
    "needs_research": (False,),
    "tasks": (ONE_TASK,),
    "task_blocked": (False,),
    "checks_pass": (True,),
    "open_findings": (0,),
    "change_url": (CHANGE,),
    "ci_passed": (True,),
}
TO_PLAN = ["start-work-package", "design", "plan-tasks"]
TO_REVIEW = [*TO_PLAN, "implementation", "validation", "review"]
MADE = ["plan-tasks", "implementation", "validation", "review"]
TO_END = ["submit-change", "merge", "close-work-package"]


def package(*, answers: dict[str, tuple[Any, ...]] | None = None, finds: dict[str, tuple[Any, ...]] | None = None) -> Life:
    return Life({**ANSWERS, **(answers or {})}, {**FINDS, **(finds or {})}, {"issue": "Uploads fail now and then."})


STOPPED = package(answers={"unblock-task": ("stop",)}, finds={"task_blocked": (True,)})
UNCLEAR = {"requirements_clear": (False,)}
ROUTES: dict[str, tuple[Life, list[str], str]] = {
    "straight": (package(), [*TO_REVIEW, *TO_END], "merged"),
    "quick-fix": (package(answers={"choose-route": ("quick-fix",)}), ["start-work-package", *MADE, *TO_END], "merged"),
    "review-only": (
        package(answers={"choose-route": ("review-only",), "release-review": ("comment",)}, finds={"open_findings": (3,)}),
        ["start-work-package", "review", "submit-change", "close-work-package"],
        "reviewed",
    ),
    "unclear-and-unknown": (
        package(
            answers={"confirm-requirements": ("ask-again", "confirmed"), "approve-design": ("rethink", "approve")},
            finds={**UNCLEAR, "needs_research": (True,)},
        ),
        ["start-work-package", *["elicitation"] * 2, *["research", "design"] * 2, *MADE, *TO_END],
        "merged",
    ),
    "given-back": (
        package(answers={"confirm-requirements": ("return-issue",)}, finds=UNCLEAR),
        ["start-work-package", "elicitation", "close-work-package"],
        "returned",
    ),
    "dropped": (
        package(answers={"approve-design": ("drop",)}),
        ["start-work-package", "design", "close-work-package"],
        "dropped",
    ),
    "stopped": (STOPPED, [*TO_PLAN, "implementation", "close-work-package"], "stopped"),
    "put-aside": (
        package(answers={"unblock-task": ("put-aside",)}, finds={"task_blocked": (True,)}),
        [*TO_REVIEW, *TO_END],
        "merged",
    ),
    **{
        f"put-aside-{'-'.join('blocked' if found else 'free' for found in blocked)}": (
            package(answers={"unblock-task": ("put-aside",)}, finds={"tasks": (ONE_TASK * 3,), "task_blocked": blocked}),
            [*TO_REVIEW, *TO_END],
            "merged",
        )
        for blocked in ((True, False, False), (False, True, False), (True, False, True), (True, True, True))
    },
    "checks-fail": (
        package(finds={"checks_pass": (False, False, False, False, True)}),
        [*TO_REVIEW[:-1], *MADE, *TO_END],
        "merged",
    ),
    "findings-mended": (package(finds={"open_findings": (2, 1, 0)}), [*TO_REVIEW, *TO_END], "merged"),
    "findings-accepted": (
        package(answers={"answer-findings": ("accept",)}, finds={"open_findings": (1,)}),
        [*TO_REVIEW, *TO_END],
        "merged",
    ),
    "checks-fail-on-the-change": (
        package(finds={"ci_passed": (False, True)}),
        [*TO_REVIEW, "submit-change", "validation", "review", *TO_END],
        "merged",
    ),
    "changed-then-abandoned": (
        package(answers={"consent-to-merge": ("change", "abandon")}),
        [*TO_REVIEW, "submit-change", "merge", *MADE, *TO_END],
        "abandoned",
    ),
}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(environ={"FIDELIO_HOME": str(tmp_path / "home"), "FIDELIO_MIN_RESPONSE_SECONDS": "0"})


@pytest.fixture
async def play(settings: Settings) -> AsyncIterator[Player]:
    async with playing(settings, BUNDLED, fidelity="enforce") as player:
        yield player


@pytest.fixture
def hire(play: Player, settings: Settings) -> Hire:
    return lambda name, life: Agent(play, settings, name, life)


@proves("bundled.honest-walks")
@pytest.mark.parametrize("route", ROUTES)
async def test_honest_work_comes_to_the_end_of_a_work_package_with_the_outcome_that_is_documented(
    hire: Hire, route: str
) -> None:
    life, visits, outcome = ROUTES[route]
    agent = hire("work-package", life)

    status = await agent.walk()

    assert (status["status"], agent.visits, status["variables"]["outcome"]) == ("completed", visits, outcome)


@proves("bundled.honest-walks")
@pytest.mark.parametrize("known", [False, True], ids=["fresh", "resumed"])
async def test_honest_work_comes_to_the_end_of_meta(hire: Hire, known: bool) -> None:
    agent = hire("meta", Life(finds={"workflow_id": ("hello",), "session_known": (known,), "finished": (True,)}))

    status = await agent.walk()

    between = ["resume-workflow"] if known else []
    assert (status["status"], agent.visits) == ("completed", ["start-workflow", *between, "end-workflow"])


@proves("bundled.honest-walks")
@pytest.mark.parametrize(("option", "between"), [("warm", ["compose"]), ("brief", ["compose"]), ("none", [])])
async def test_honest_work_comes_to_the_end_of_hello(hire: Hire, option: str, between: list[str]) -> None:
    agent = hire("hello", Life({"choose-tone": (option,)}))

    status = await agent.walk()

    assert (status["status"], agent.visits) == ("completed", ["greet", *between, "farewell"])


def effort(*packages: Life, **answers: tuple[str, ...]) -> Life:
    said = {"confirm-scope": ("confirmed",), "choose-order": ("value",), "approve-roadmap": ("approve",)}
    finds = {
        "goal_slug": ("uploads",),
        "packages": (PACKAGES[: len(packages)],),
        "issue": ("1", "2", "3"),
        "work_slug": ("retry", "resume", "report"),
        "quick_fix": (True, False),
    }
    return Life({**said, **{key.replace("_", "-"): row for key, row in answers.items()}}, finds, {"goal": "Calm"}, packages)


def handed(life: Life) -> Life:
    """A package that is begun by its parent, which hands over the issue."""
    return Life(life.answers, life.finds)


@proves("bundled.honest-walks", "bundled.own-outcome")
@pytest.mark.parametrize(
    "ends",
    [
        ["stopped", "merged"],
        ["merged", "merged"],
        ["merged", "stopped"],
        ["merged", "stopped", "stopped"],
        ["stopped", "merged", "stopped"],
        ["stopped", "merged", "merged"],
    ],
    ids="-then-".join,
)
async def test_every_package_of_an_effort_comes_to_its_own_end(hire: Hire, ends: list[str]) -> None:
    lives = [handed(STOPPED if end == "stopped" else package()) for end in ends]
    agent = hire("work-packages", effort(*lives, choose_next=("continue",)))

    status = await agent.walk()
    packages = [(await child.status())["variables"] for child in agent.children]

    assert (status["status"], agent.visits[-2:]) == ("completed", ["carry-out", "wrap-up"])
    assert [package["outcome"] for package in packages] == ends
    assert [package["change_url"] for package in packages] == [CHANGE if end == "merged" else "" for end in ends]
    assert [status["variables"][name] for name in ("outcome", "change_url")] == [
        packages[-1][n] for n in ("outcome", "change_url")
    ]


@proves("bundled.honest-walks")
async def test_an_effort_can_be_put_in_order_again_and_ended_by_a_person(hire: Hire) -> None:
    answers = {"approve_roadmap": ("reorder", "approve"), "choose_next": ("replan", "stop")}
    agent = hire("work-packages", effort(handed(STOPPED), handed(STOPPED), **answers))

    status = await agent.walk()

    assert status["status"] == "completed"
    assert agent.visits[2:] == [
        *("prioritise", "write-roadmap") * 2,
        *("prepare-packages", "carry-out", "prioritise", "write-roadmap", "prepare-packages", "carry-out", "wrap-up"),
    ]


@proves("bundled.no-overruling")
async def test_however_often_a_person_says_not_yet_the_requirements_are_asked_about_again(hire: Hire) -> None:
    refused = 7
    answers = {"confirm-requirements": (*["ask-again"] * refused, "confirmed")}
    agent = hire("work-package", package(answers=answers, finds=UNCLEAR))

    await agent.walk()

    assert agent.visits[1 : refused + 3] == [*["elicitation"] * (refused + 1), "design"]


@proves("bundled.no-overruling")
async def test_findings_that_five_rounds_have_not_mended_take_a_new_plan_and_are_not_submitted(hire: Hire) -> None:
    agent = hire("work-package", package(finds={"open_findings": (*[1] * 5, 0)}))

    status = await agent.walk()

    assert agent.visits == [*TO_REVIEW, *MADE, *TO_END]
    assert status["variables"]["outcome"] == "merged"


@proves("bundled.no-overruling")
async def test_no_move_leads_past_a_person_who_has_not_confirmed(hire: Hire, play: Player) -> None:
    agent = hire("work-package", package(answers={"confirm-requirements": ("ask-again",)}, finds=UNCLEAR))
    await agent.walk(most=2)
    here = workflow("work-package").activity("elicitation")
    done = [{"step_id": step.id, "output": "Done."} for step in (here.steps if here else ())]
    for target in ("design", "research", "close-work-package"):
        refused = await play("next_activity", session_token=agent.token, activity_id=target, step_manifest=done)
        assert f"transition to '{target}' does not hold" in refused.text

    assert agent.visits == ["start-work-package", "elicitation"]
