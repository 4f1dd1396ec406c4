"""Recall in a ledger: sources, visibility, lineage and backends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from fidelio.ledger.model import NewEvent, PutDocument
from fidelio.runtime import events as e
from fidelio.runtime.environments.versions import Environment, define
from fidelio.runtime.memory.workspace import load_workspace_memory
from fidelio.runtime.navigation.visibility import OPENNESS
from fidelio.runtime.recall.model import BackendName, BackendRequest, Found, RecallScope
from fidelio.runtime.recall.search import recall
from fidelio.runtime.resources.memory_file import MEMORY_FILES
from fidelio.runtime.resources.versions import Substrate
from fidelio.runtime.tools.model import RuntimeContext
from tests.runtime.navigation.support import PROJECT, make, message, reply, wake
from tests.runtime.recall.support import ALL_TOOLS, RecallWorld, check_call, tool_call
from tests.support import proves

ALL_BACKENDS: tuple[BackendName, ...] = ("memory", "session_context", "session_trace")


def outcome(title: str, text: str = "done") -> NewEvent:
    body = {"outcome_id": "o1", "title": title, "criteria": [{"text": text}], "author": "agent"}
    return make(e.OUTCOME_DEFINED, body)


def evaluated(summary: str, wake_id: str = "w1") -> NewEvent:
    body = {"outcome_id": "o1", "iteration": 0, "status": "fail", "trend": "first_iteration", "results": []}
    return make(e.EVALUATION_ENDED, {**body, "summary": summary, "wake_id": wake_id})


def command(text: str) -> NewEvent:
    return make(e.COMMAND_STARTED, {"command_id": "c1", "tool": "shell_run", "command": text, "cwd": "/workspace"})


async def put_note(world: RecallWorld, session: str, path: str, text: str) -> None:
    await world.append(session, documents=(PutDocument(space=f"memory:{session}", path=path, text=text),))


async def put_memory_file(world: RecallWorld, notes: str, more: str = "") -> None:
    substrate = await Substrate.open(world.context, PROJECT, "default")
    text = (await load_workspace_memory(substrate)).with_section("notes", notes) + more
    await substrate.store_file(MEMORY_FILES[0], text.encode(), origin="person", by="test")


@proves("recall.sources")
async def test_events_of_other_sessions_are_found_with_their_wake(world: RecallWorld) -> None:
    own = await world.start()
    other = await world.start(*wake("w1", message("the flux capacitor leaks"), reply("w1", "I sealed the capacitor.")))

    hits = (await world.search(own, "capacitor leaks", backends=("session_context",))).hits

    assert [(hit["sessionId"], hit["wakeId"], hit["source"]) for hit in hits] == [
        (other, None, "session_context"),
        (other, "w1", "session_context"),
    ]
    assert hits[0]["reasons"] == ["exact-query", "term-overlap:2"]
    assert hits[0]["snippet"] == "the flux capacitor leaks"
    assert hits[0]["eventId"].startswith("e_")
    assert next(iter(hits[0])) == "sessionId"


@proves("recall.sources")
async def test_every_kind_of_memory_is_found_as_its_source(world: RecallWorld) -> None:
    own = await world.start()
    sessions = {
        "session_checkpoint": await world.start(*wake("w1", summary="the zebra is painted")),
        "session_outcome": await world.start(outcome("A painted zebra")),
        "session_evaluation": await world.start(outcome("x"), *wake("w1", evaluated("the zebra is missing"))),
        "shell_state": await world.start(command("paint zebra")),
        "session_state": await world.start(),
        "working_buffer": await world.start(),
    }
    for store in ("session_state", "working_buffer"):
        await put_note(world, sessions[store], store, "the zebra has stripes")
    await world.learn("About the zebra", "Paint it last.", session="s_origin")
    await put_memory_file(world, "zebra notes", "\nzebra rules\n")

    assert await world.sources(own, "zebra", backends=("memory",), limit=20) == sorted(
        [
            *((session, source) for source, session in sessions.items()),
            *(("s_origin", "learning"), (None, "workspace_memory"), (None, "workspace_memory_notes")),
        ],
        key=str,
    )


@proves("recall.sources")
async def test_what_is_no_longer_part_of_a_memory_is_not_found_there(world: RecallWorld) -> None:
    own = await world.start()
    await world.start(*wake("w1", summary="an old zebra"), *wake("w2", summary="something else"))
    await world.start(outcome("zebra"), make(e.OUTCOME_DEFINED, {"outcome_id": "o2", "title": "Zebra", "criteria": []}))
    later = [event for number in range(2, 6) for event in wake(f"w{number}", evaluated("nothing", f"w{number}"))]
    await world.start(outcome("x"), *wake("w1", evaluated("a zebra")), *later)
    noted = await world.start()
    for text in ("zebra", "lion"):
        await put_note(world, noted, "session_state", text)

    found = await world.sources(own, "zebra", backends=("memory",), limit=20)

    assert [source for _, source in found] == ["session_outcome"]


@proves("recall.sources")
async def test_wakes_are_found_by_what_they_said_at_their_end(world: RecallWorld) -> None:
    own = await world.start()
    other = await world.start(
        *wake("w1", message("zebra"), summary="Painted the zebra."), *wake("w2", summary="Went home to the zebra.")
    )

    hits = (await world.search(own, "zebra painted", backends=("session_trace",))).hits

    # The idle event and the end of the span are one wake and one evidence.
    assert [(hit["sessionId"], hit["wakeId"], hit["eventId"]) for hit in hits] == [(other, "w1", None), (other, "w2", None)]
    assert hits[0]["evidences"] == [{"backend": "session_trace", "source": "session_trace"}]
    assert hits[0]["snippet"] == "Painted the zebra."
    by_id = (await world.search(own, "w2", backends=("session_trace",))).hits
    assert [hit["wakeId"] for hit in by_id] == ["w2"]


@proves("recall.sources")
@pytest.mark.parametrize("tool", ["retrieval_search", "session_get_events", "memory_search", "memory_read"])
async def test_results_of_earlier_searches_are_not_found(world: RecallWorld, tool: str) -> None:
    own = await world.start()
    await world.start(
        *tool_call(tool, {"query": "zebra"}, '{"hits": [{"snippet": "zebra"}]}'),
        make(e.TOOL_USE, {"id": "t2", "name": "tool_call", "input": {"name": tool, "arguments": {"q": "zebra"}}}),
        make(e.TOOL_USE, {"id": "t3", "name": "tool_call", "input": {"text": f'{{"name": "{tool}", "q": "zebra"}}'}}),
    )
    other = await world.start(*tool_call("read", {"path": "zebra.txt"}, "black and white"))

    assert await world.sources(own, "zebra") == [(other, "session_context")]


@proves("recall.words")
async def test_a_word_is_not_found_inside_of_a_longer_word(world: RecallWorld) -> None:
    """Counting substrings was defect 33 of the reference."""
    own = await world.start()
    await world.start(message("the category"), message("concatenate"))
    other = await world.start(message("a cat"))

    assert await world.sources(own, "cat") == [(other, "session_context")]


@proves("recall.visible")
async def test_the_own_session_is_found_only_if_it_is_included(world: RecallWorld) -> None:
    own = await world.start(*wake("w1", message("zebra"), summary="zebra"), outcome("zebra"))
    await put_note(world, own, "session_state", "zebra")

    assert await world.sources(own, "zebra") == []
    assert {session for session, _ in await world.sources(own, "zebra", include_current=True)} == {own}


@proves("recall.visible")
@pytest.mark.parametrize("difference", [{"agent": "other"}, {"project": "/elsewhere"}, {"role": "store"}])
async def test_sessions_of_others_are_not_found(world: RecallWorld, difference: dict[str, str]) -> None:
    own = await world.start()
    await world.start(message("zebra"), *wake("w1", summary="zebra"), **difference)

    assert (await world.search(own, "zebra")).hits == ()


@proves("recall.visible")
async def test_a_busy_agent_does_not_hide_the_hits_of_another_agent_in_the_project(world: RecallWorld) -> None:
    own = await world.start()
    mine = await world.start(message("zebra and many more words in a long message"))
    await world.start(*(message("zebra") for _ in range(300)), agent="other")

    assert await world.sources(own, "zebra") == [(mine, "session_context")]


@proves("recall.visible")
async def test_only_sessions_and_learnings_with_a_network_at_least_as_open_are_found(world: RecallWorld) -> None:
    sessions: dict[str, str] = {}
    bodies: dict[str, dict[str, Any]] = {}
    for network in OPENNESS:
        hosts = ("example.org",) if network == "limited" else ()
        version = await define(world.context, network, Environment(network=network, hosts=hosts), by="test")
        bodies[network] = {"environment": network, "environment_version": version.version}
        sessions[network] = await world.start(message("zebra"), **bodies[network])
        await world.learn(f"{network} zebra", "stripes", session=f"s_{network}", network=network)

    for network in OPENNESS:
        own = await world.start(**bodies[network])
        visible = [other for other in OPENNESS if OPENNESS[other] >= OPENNESS[network]]
        expected = [(sessions[other], "session_context") for other in visible]
        expected += [(f"s_{other}", "learning") for other in visible]
        assert await world.sources(own, "zebra", limit=20) == sorted(expected)


@proves("recall.lineage")
@pytest.mark.parametrize(
    ("lineage", "expected"),
    [
        ("parent", {"parent"}),
        ("children", {"child"}),
        ("siblings", {"sibling"}),
        ("related", {"parent", "child", "sibling"}),
        (None, {"parent", "child", "sibling", "grandparent", "cousin"}),
    ],
)
@pytest.mark.parametrize("backend", ALL_BACKENDS)
async def test_a_lineage_limits_every_backend(world: RecallWorld, lineage: Any, expected: set[str], backend: str) -> None:
    """It was accepted and ignored: defect 21 of the reference."""
    events = (message("zebra"), *wake("w1", summary="zebra"))
    names: dict[str, str] = {}
    names["grandparent"] = await world.start(*events)
    names["parent"] = await world.start(*events, parent=names["grandparent"])
    uncle = await world.start(parent=names["grandparent"])
    names["cousin"] = await world.start(*events, parent=uncle)
    own = await world.start(*events, parent=names["parent"])
    names["sibling"] = await world.start(*events, parent=names["parent"])
    names["child"] = await world.start(*events, parent=own)
    await world.learn("zebra", "a zebra")

    result = await world.search(
        own, "zebra", lineage=lineage, backends=(backend,), limit=20, include_current=lineage is not None
    )

    found = {hit["sessionId"] for hit in result.hits}
    assert found - {"s_origin"} == {names[name] for name in expected}
    assert ("s_origin" in found) == (lineage is None and backend == "memory")


@proves("recall.lineage")
async def test_a_session_without_relatives_finds_nothing_by_lineage(world: RecallWorld) -> None:
    own = await world.start()
    await world.start(message("zebra"))

    for lineage in ("related", "parent", "children", "siblings"):
        assert (await world.search(own, "zebra", lineage=lineage)).hits == ()


@proves("recall.priors")
async def test_learnings_are_not_crowded_out_by_many_better_events(world: RecallWorld) -> None:
    own = await world.start()
    await world.learn("The zebra", "Where there is a zebra, there are more.")
    seen = "the zebra in the garden was seen by the keeper and two guests early this morning near the old gate"
    await world.start(*(message(seen) for _ in range(300)))

    first, *others = (await world.search(own, "zebra", limit=3)).hits

    assert first["source"] == "learning"
    assert {hit["source"] for hit in others} == {"session_context"}


@proves("recall.expansion", "recall.tools")
async def test_every_hit_has_the_lifted_fields_and_a_valid_next_call(world: RecallWorld) -> None:
    own = await world.start(*wake("w0", setup="f1"), outcome("Paint it", "the zebra is painted"))
    pending = {"request": "r1", "digest": "d", "tool": "shell_run", "expires": 1 << 50, "command": "ls", "cwd": "/"}
    other = await world.start(
        outcome("paint IT", "zebra painted by hand"),
        *wake("w1", message("zebra"), evaluated("zebra"), summary="zebra", setup="f2"),
        make(e.APPROVAL_REQUESTED, pending),
        parent=own,
    )
    await world.learn("zebra", "z")
    await put_memory_file(world, "zebra", "\nzebra")

    result = await world.search(own, "zebra", limit=20)

    for hit in result.hits:
        check_call(hit["nextStep"])
        assert hit["confidence"] in ("high", "medium", "low")
    for step in result.plan:
        check_call(step)
    theirs = [hit for hit in result.hits if hit["sessionId"] == other]
    assert {hit["source"] for hit in theirs} >= {"session_context", "session_trace"}
    for hit in theirs:
        assert hit["nextStep"]["tool"] == "agent_compare_setup"
        assert (hit["setupMatch"], hit["sessionRelation"]) == (False, "child")
        assert (hit["outcomeStatus"], hit["promotionReady"], hit["outcomeTrend"]) == ("blocked", False, "first_iteration")
        assert (hit["requiresAction"], hit["pendingActionKind"], hit["pendingActionToolName"]) == (
            *(True, "tool_confirmation", "shell_run"),
        )
        assert {"outcome-title", "relation:child"} <= set(hit["reasons"])


@proves("recall.priors")
async def test_a_session_with_the_same_setup_comes_first(world: RecallWorld) -> None:
    """Setups of different sessions were never equal: defect 21 of the reference."""
    own = await world.start(*wake("w0", setup="f1"))
    same = await world.start(message("zebra"), *wake("w1", setup="f1"))
    world.clock.now += 1000
    other = await world.start(message("zebra"), *wake("w1", setup="f2"))

    hits = (await world.search(own, "zebra", backends=("session_context",))).hits

    assert [(hit["sessionId"], hit["setupMatch"]) for hit in hits] == [(same, True), (other, False)]
    assert hits[0]["score"] == hits[1]["score"] + 2
    assert hits[0]["nextStep"]["tool"] == "session_get_events"


@proves("recall.backends")
async def test_only_the_named_backends_search(world: RecallWorld) -> None:
    own = await world.start()
    await world.start(message("zebra"), *wake("w1", summary="zebra"))

    for backend in ALL_BACKENDS:
        result = await world.search(own, "zebra", backends=(backend,))
        assert {hit["backend"] for hit in result.hits} == {backend}
        assert [each["backend"] for each in result.backends] == [backend]
    nothing = await world.search(own, "zebra", backends=("vector",))
    assert (nothing.hits, nothing.plan) == ((), ())
    assert nothing.backends == ({"backend": "vector", "count": 0, "topScore": None},)


class FakeVectors:
    """A backend that finds the same text in the sessions that a test names."""

    name: BackendName = "vector"

    def __init__(self, *sessions: str) -> None:
        self.sessions = sessions

    def list_types(self, _: tuple[str, ...]) -> tuple[str, ...]:
        return ()

    async def find(self, request: BackendRequest) -> Sequence[Found]:
        found = [await request.find_session(session) for session in self.sessions]
        return [
            Found(
                backend="vector", source="vector", relevance=0.5, text="striped horse", snippet="…", session=session, scale="v"
            )
            for session in found
            if session is not None
        ]


def bind(context: RuntimeContext, backend: FakeVectors) -> RuntimeContext:
    return replace(context, ports=replace(context.ports, recall_backends=(backend,)))


@proves("recall.backends")
async def test_a_bound_backend_takes_part_and_shows_only_what_may_be_read(world: RecallWorld) -> None:
    own, other = await world.start(), await world.start(message("zebra"))
    hidden = await world.start(agent="other")
    context = bind(world.context, FakeVectors(own, other, hidden, "s_unknown", "'; drop"))
    await world.context.ledger.update_index()

    result = await recall(context, await world.load(own), "zebra", tools=ALL_TOOLS, scope=RecallScope())

    assert [(hit["sessionId"], hit["source"], hit["score"]) for hit in result.hits] == [
        (other, "session_context", 12),
        (other, "vector", 10),
    ]
    check_call(result.hits[1]["nextStep"])


@proves("recall.query")
@pytest.mark.parametrize("query", ["", " .,; ", "\x00", '"""', "* ? ( ["])
async def test_a_query_without_words_finds_nothing(world: RecallWorld, query: str) -> None:
    own = await world.start()
    await world.start(message("zebra"))

    assert (await world.search(own, query)).hits == ()


@proves("recall.visible")
async def test_a_deleted_session_is_not_found(world: RecallWorld) -> None:
    own, other = await world.start(), await world.start(message("zebra"))
    await world.context.ledger.erase([other], actor="p", reason="r")

    assert (await world.search(own, "zebra")).hits == ()


@proves("recall.tools")
async def test_the_work_of_a_search_does_not_grow_with_the_number_of_sessions(
    world: RecallWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = await world.start()
    for _ in range(60):
        await world.start(message("zebra"))
    loaded: list[str] = []
    read = world.context.ledger.session

    async def count(session: str) -> Any:
        loaded.append(session)
        return await read(session)

    monkeypatch.setattr(world.context.ledger, "session", count)
    hits = (await world.search(own, "zebra", limit=3)).hits

    assert len(hits) == 3
    # The own session, and at most those of the ranked hits, each once.
    assert len(loaded) <= 34
    assert len(set(loaded)) == len(loaded)
