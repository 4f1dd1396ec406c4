"""A wake: a bounded activation of a session.

Claimed as a job, it reads what is pending, calls the model with tools in rounds, and commits the end with status, queued wakes
and memory in one transaction. Every turn of the model is on record before its calls are carried out, and every call before its
effect. So a wake that a process did not finish is finished by the next one, from the record alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from random import SystemRandom

from msgspec.structs import replace

from fidelio.errors import FidelioError, SessionNotFound
from fidelio.ids import new_id
from fidelio.ledger.jobs import STOPPED, Assignment
from fidelio.ledger.model import Change, Completion, NewEvent
from fidelio.providers.model import (
    ModelProblem,
    ModelReply,
    ModelRequest,
    OnText,
    ToolUseBlock,
)
from fidelio.runtime import events as e
from fidelio.runtime.artifacts import ArtifactState, write_state_artifacts
from fidelio.runtime.calls import Calls
from fidelio.runtime.closing import return_share
from fidelio.runtime.memory.learning_files import write_learnings
from fidelio.runtime.memory.promotions import commit_promotions
from fidelio.runtime.navigation.context import ContextBudget
from fidelio.runtime.previews import MessagePreview, Previews
from fidelio.runtime.servers.servers import open_servers
from fidelio.runtime.setup.setup import Setup
from fidelio.runtime.snapshots.snapshots import store_snapshot
from fidelio.runtime.tools.meta import unwrap
from fidelio.runtime.tools.model import SANDBOX_GROUPS, CallOrigin, LoadedRuntime, RuntimeContext, event
from fidelio.runtime.wakes import ending
from fidelio.runtime.wakes.beginning import Beginning
from fidelio.runtime.wakes.compaction import compact
from fidelio.runtime.wakes.conversation import Conversation, ConversationReader, drop_images
from fidelio.runtime.wakes.custom_inputs import check_custom_calls
from fidelio.runtime.wakes.directive import parse_reply
from fidelio.runtime.wakes.finishing import Finish
from fidelio.runtime.wakes.measuring import measure_context
from fidelio.runtime.wakes.model_calls import RequestSpan, Timing, WakeInterrupted, request_reply, watch_interrupts
from fidelio.runtime.wakes.preparation import Offer, Prepared, prepare
from fidelio.runtime.wakes.replies import bound_usage, describe_reply, name_first_message, note_permissions
from fidelio.runtime.wakes.rounds import Rounds
from fidelio.runtime.wakes.rules import (
    MAX_SECONDS,
    TURN_LIMIT,
    Answered,
    Fresh,
    Interrupted,
    NothingDue,
    Resumed,
    check_budget,
    plan_wake,
)
from fidelio.runtime.wakes.tool_inputs import open_inputs
from fidelio.runtime.wakes.updates import WakeUpdates

OnSessionText = Callable[[str, str], None]
# An interrupted wake, the wake that follows it, and one more plan that finds nothing left.
_MAX_PLANS = 4
# A wake that fails this often in a row for a reason that is not foreseen is ended. Crashes and stopped workers do not count.
_MAX_FAILURES = 3
_REFUSED = (HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
_DEFAULT_TIMING = Timing(asyncio.sleep, SystemRandom().random)


class WakeRunner:
    """Carries out wakes. `on_text` gets the text of models as it arrives, with the id of the session."""

    def __init__(
        self,
        context: RuntimeContext,
        *,
        on_text: OnSessionText | None = None,
        previews: Previews | None = None,
        timing: Timing = _DEFAULT_TIMING,
    ) -> None:
        self.context = context
        self._on_text, self._timing = on_text, timing
        self._previews = previews or Previews()

    async def run(self, assignment: Assignment) -> None:
        """The handler of the job: carry out what is due in the session, if anything is."""
        try:
            await self._run(assignment)
        except SessionNotFound:
            # It was ended or deleted while its job waited, or while a tool was about to be called.
            if not await self._has_ended(assignment.lease.session):
                raise
            await return_share(self.context, assignment.lease.session)

    async def _has_ended(self, session: str) -> bool:
        try:
            return (await self.context.unit.load(session)).record.status == "terminated"
        except SessionNotFound:
            return True

    async def _run(self, assignment: Assignment) -> None:
        context, session = self.context, assignment.lease.session
        loaded = await commit_promotions(context, await context.unit.load(session), assignment=assignment)
        is_broken = assignment.lease.attempt > _MAX_FAILURES and is_failure(assignment.lease.error)
        if is_broken and not loaded.record.is_closed:
            await WakeUpdates(context, assignment, loaded).stop_broken(assignment.lease.error)
            return
        for _ in range(_MAX_PLANS):
            plan = plan_wake(loaded.record, now=context.clock())
            if isinstance(plan, NothingDue):
                if loaded.record.is_closed and loaded.record.depth:
                    await return_share(context, session)
                jobs = (*ending.wake_job(session, plan.next), *ending.expiry_job(session, plan.expiry))
                await assignment.commit(Change(session=session, jobs=jobs), settle=Completion())
                return
            updates = WakeUpdates(context, assignment, loaded)
            try:
                await self._carry_out(plan, updates)
            except WakeInterrupted:
                # The plan after this one ends what is open, and goes on with what the person says.
                await updates.reload()
            loaded = updates.loaded
            if assignment.is_settled:
                return

    async def _carry_out(self, plan: Interrupted | Resumed | Answered | Fresh, updates: WakeUpdates) -> None:
        if isinstance(plan, Interrupted):
            await updates.end_interrupted()
            return
        loaded = updates.loaded
        async with watch_interrupts(self.context.ledger, loaded.id, after=loaded.record.seq) as interrupt:
            wake = _Wake(self, updates, interrupt)
            await wake.carry_out(plan)
        await wake.write_files()

    def begin_preview(self, session: str) -> MessagePreview:
        return MessagePreview(self._previews, session)

    def stream_text(self, session: str, preview: MessagePreview) -> OnText:
        on_text = self._on_text

        def show(text: str) -> None:
            preview.feed(text)
            if on_text is not None:
                on_text(session, text)

        return show

    @property
    def timing(self) -> Timing:
        return self._timing


class _Wake:
    """An active wake."""

    def __init__(self, runner: WakeRunner, updates: WakeUpdates, interrupt: asyncio.Event) -> None:
        self._runner, self._updates, self._interrupt = runner, updates, interrupt
        self._context = runner.context
        self._conversation = ConversationReader(runner.context.ledger, updates.loaded.id)
        self._prepared: Prepared | None = None
        self._has_files = False
        self._setup: Setup | None = None
        self._budget: ContextBudget | None = None
        self._id = ""
        self._turn_count = 0
        self._is_shortened = False
        # What was left out of replies, which the model is told in the next wake.
        self._dropped: list[str] = []
        self._began = asyncio.get_running_loop().time()

    @property
    def _loaded(self) -> LoadedRuntime:
        return self._updates.loaded

    async def write_files(self) -> None:
        """Write what the session can read about itself in its sandbox. It is derived from the record, which is committed.

        Only where a sandbox reads it: the files take a third of the CPU of a wake.
        """
        if self._prepared is not None and self._loaded.record.sandbox.level:
            await self._write_files(self._prepared, is_end=True)

    async def _write_files(self, prepared: Prepared, *, is_end: bool = False) -> None:
        state = ArtifactState(
            tools=prepared.tools, skills=prepared.skills, setup=self._setup, budget=self._budget, is_end=is_end
        )
        await write_state_artifacts(self._context, self._loaded, state)
        await write_learnings(self._context, self._loaded)

    async def carry_out(self, plan: Resumed | Answered | Fresh) -> None:
        try:
            prepared = await prepare(self._context, self._loaded)
        except FidelioError as error:
            await self._updates.fail(plan, error)
            return
        async with open_servers(self._updates, prepared, self._interrupt) as offered:
            await self._carry_out(plan, offered)

    async def _carry_out(self, plan: Resumed | Answered | Fresh, prepared: Prepared) -> None:
        self._prepared = prepared
        self._finish = Finish(self._updates, prepared, self._grade, self._interrupt)
        try:
            if await self._begin(plan, prepared):
                await self._work(prepared)
        except ModelProblem as problem:
            await self._updates.abandon(self._id, problem)

    async def _begin(self, plan: Resumed | Answered | Fresh, prepared: Prepared) -> bool:
        """Commit the beginning of the wake; False if a budget forbids it."""
        record, now = self._loaded.record, self._context.clock()
        if isinstance(plan, Resumed):
            self._id = plan.wake
            return True
        state = check_budget(record, prepared.budget, now=now, is_priced=prepared.info.price is not None, begins=True)
        if state.problem:
            await self._updates.stop_at_budget("", state)
            return False
        self._id = new_id("wake_")
        self._setup = await Beginning(self._updates, prepared).commit(self._id, plan)
        await store_snapshot(self._updates, self._id)
        return True

    async def _work(self, prepared: Prepared) -> None:
        """Alternate between the model and its tools until it has nothing more to call, or a limit is reached."""
        while True:
            conversation = await self._conversation.read(after=self._loaded.record.wakes.compacted_seq)
            if self._loaded.record.wakes.open_calls:
                is_cut = await self._carry_out_calls(prepared, conversation)
                if is_cut:
                    await self._updates.extend(self._id)
                    return
                if self._loaded.record.wakes.open_calls and await self._updates.pause(self._id):
                    return
                continue
            if conversation.ends_with_reply and self._is_own_reply(conversation):
                self._budget = measure_context(prepared, conversation, self._updates.begun_seq)
                reply = parse_reply(conversation.last_text)
                await self._finish.commit(self._id, reply, self._budget, dropped=self._dropped)
                return
            if self._is_at_limit():
                await self._updates.extend(self._id)
                return
            if not await self._request_turn(prepared, conversation):
                return

    def _is_own_reply(self, conversation: Conversation) -> bool:
        """Whether the reply at the end belongs to this wake, and is not the end of an earlier wake."""
        return conversation.blocks[-1].seq > self._updates.begun_seq

    def _is_at_limit(self) -> bool:
        return self._turn_count >= TURN_LIMIT or asyncio.get_running_loop().time() - self._began > MAX_SECONDS

    async def _carry_out_calls(self, prepared: Prepared, conversation: Conversation) -> bool:
        """Carry out the open calls of the turn; True if the time of the wake was over before all were."""
        await self._updates.store_custom_results()
        uses = {part.block.id: part.block for part in conversation.blocks if isinstance(part.block, ToolUseBlock)}
        await self._updates.refuse_lost(uses)
        origin = CallOrigin(wake=self._id, assignment=self._updates.assignment, grade=self._grade)
        offer = prepared.offer
        if not self._has_files and any(
            _needs_sandbox(uses[call.id], offer) for call in self._loaded.record.wakes.open_calls if call.id in uses
        ):
            self._has_files = True
            await self._write_files(prepared)
        rounds = Rounds(self._context, Calls(self._context), offer, origin, self._interrupt)
        calls = self._loaded.record.wakes.open_calls
        inputs = await open_inputs(self._context, self._loaded.id, calls, uses)
        is_cut = await rounds.carry_out(self._loaded, inputs, deadline=self._began + MAX_SECONDS)
        await self._updates.reload()
        return is_cut

    async def _request_turn(self, prepared: Prepared, conversation: Conversation) -> bool:
        """Call the model and record its turn; False if the wake has ended with it."""
        context, record = self._context, self._loaded.record
        is_priced = prepared.info.price is not None
        state = check_budget(record, prepared.budget, now=context.clock(), is_priced=is_priced, begins=False)
        if state.problem:
            await self._updates.stop_at_budget(self._id, state)
            return False
        if await compact(self._updates, prepared, conversation, self._id, self._request):
            return True
        request = ModelRequest(
            model=prepared.vendor_model,
            system=prepared.system,
            messages=conversation.messages,
            tools=prepared.declarations,
            max_tokens=min(prepared.agent.definition.max_output_tokens, prepared.info.max_output),
            effort=prepared.agent.definition.effort,
            conversation=self._loaded.id,
        )
        preview = self._runner.begin_preview(self._loaded.id)
        try:
            reply, span = await self._request(prepared, request, "turn", preview)
        except ModelProblem as problem:
            # The window is smaller than it was taken to be: shorten the conversation once, and try again.
            if problem.kind != "context_too_long_error" or self._is_shortened:
                raise
            self._is_shortened = True
            if not await compact(self._updates, prepared, conversation, self._id, self._request, is_forced=True):
                raise
            return True
        self._turn_count += 1
        if reply.stop_reason == "refusal":
            await self._updates.refuse(self._id, span, reply.text)
            return False
        await self._record_turn(prepared, reply, span, preview.message)
        return True

    async def _record_turn(self, prepared: Prepared, reply: ModelReply, span: tuple[NewEvent, ...], message: str) -> None:
        reply = await check_custom_calls(prepared.custom, reply)
        described = describe_reply(self._context, self._loaded.id, self._id, prepared, reply)
        name_first_message(described, message)
        note_permissions(described, reply.tool_uses, prepared, self._loaded.record, self._context.clock())
        self._dropped += described.dropped
        # After a retry the session was shown as rescheduled.
        again = [event(e.STATUS_RUNNING, {"wake_id": self._id})] if self._loaded.record.status == "rescheduling" else []
        await self._updates.commit([*again, *span, *described.events], blobs=tuple(described.blobs))

    async def _request(
        self, prepared: Prepared, request: ModelRequest, purpose: str, preview: MessagePreview | None = None
    ) -> tuple[ModelReply, tuple[NewEvent, ...]]:
        """Carry out a request; its span is committed by the caller, together with what it brought."""
        span = RequestSpan(self._id, prepared.model, purpose, self._context.clock)
        on_text = (lambda _: None) if preview is None else self._runner.stream_text(self._loaded.id, preview)

        async def on_retry(problem: ModelProblem, seconds: float) -> None:
            if preview is not None:
                preview.restart()
            due = self._context.clock() + int(seconds * 1000)
            error = ending.report_problem(self._id, problem, "retrying")
            await self._updates.commit([error, ending.reschedule(self._id, "model_retry", due)])

        async def send(request: ModelRequest) -> ModelReply:
            return await request_reply(prepared.provider, request, on_text, on_retry, self._runner.timing, self._interrupt)

        if not prepared.info.images:
            request = replace(request, messages=drop_images(request.messages))
        try:
            reply = await send(request)
        except ModelProblem as problem:
            bare = replace(request, messages=drop_images(request.messages))
            # Images that the vendor cannot read, or that are too large together, would be refused with every later request too.
            if problem.status not in _REFUSED or problem.kind == "context_too_long_error" or bare == request:
                raise
            reply = await send(bare)
        return reply, span.end(bound_usage(reply.usage), prepared.info)

    async def _grade(self, request: ModelRequest) -> ModelReply:
        """Ask the grader: another request of this wake, within the same budget, whose usage is recorded at once."""
        prepared = await prepare(self._context, self._loaded)
        grader = prepared.agent.definition.grader or prepared.model
        provider, vendor_model = self._context.ports.models.find(grader)
        info = self._context.ports.models.describe(grader)
        record, now = self._loaded.record, self._context.clock()
        state = check_budget(record, prepared.budget, now=now, is_priced=info.price is not None, begins=False)
        if state.problem:
            raise ModelProblem(state.problem, remedy="Raise the budget of the session.")
        own = replace(prepared, provider=provider, model=grader, vendor_model=vendor_model, info=info)
        reply, span = await self._request(own, replace(request, model=vendor_model), "grade")
        await self._updates.commit(span)
        return reply


def is_failure(error: str) -> bool:
    """Whether the last attempt raised an error, and was not only stopped with its worker."""
    return bool(error) and error != STOPPED


def _needs_sandbox(use: ToolUseBlock, offer: Offer) -> bool:
    name = unwrap(use.name, use.input)[0]
    if name in offer.extra and offer.extra[name][1].is_elsewhere:
        return False
    definition = offer.find(name)
    return definition is not None and definition.group in SANDBOX_GROUPS
