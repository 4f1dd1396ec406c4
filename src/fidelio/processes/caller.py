"""Who makes a call: a person's program, or an agent that Fidelio started.

Every surface decides it here, from signs: the run in the environment of a process and of its ancestors, their marks, the header
of a request, and the option of a server for workers. A sign only takes rights away, so one sign is enough, and signs that are
malformed or contradict each other make an agent of unknown run. `decide_caller` and `combine_callers` are pure; the other
functions read the process table. Nothing here proves that a caller is a person: another process of the same user can hide from
its ancestors, for example behind a service manager.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec
from msgspec.structs import replace

from fidelio.ids import is_short_handle, session_of_run
from fidelio.processes.table import (
    AGENT_MARKER,
    NEUTRAL_MARK,
    ProcessIdentity,
    compute_mark,
    find_parent,
    find_process_session,
    is_alive,
    read_mark,
    read_marker,
)

_NUMBER = re.compile(r"[1-9][0-9]{0,8}")


class ProcessSigns(msgspec.Struct, frozen=True):
    """The signs of a process: the run in its environment, and its mark."""

    claim: str | None = None
    mark: int | None = None


class Caller(msgspec.Struct, frozen=True):
    """The caller of a tool or a command.

    `person`: no sign of an agent. `unseen`: none either, but its process could not be looked at. `agent`: the agent of `run`.
    `worker`: an agent that only its server knows, as a worker. `unknown`: an agent whose run is not known. `processes` are the
    processes that say so or were looked at: a process can claim any run, but not choose its ancestors.
    """

    kind: Literal["person", "unseen", "agent", "worker", "unknown"] = "person"
    run: str = ""
    processes: tuple[int, ...] = ()

    @property
    def is_agent(self) -> bool:
        return self.kind not in ("person", "unseen")

    @property
    def session(self) -> str:
        """The session of the run; empty if no run is known."""
        return session_of_run(self.run)


PERSON, UNSEEN, WORKER, UNKNOWN_AGENT = Caller(), Caller("unseen"), Caller("worker"), Caller("unknown")


def decide_caller(signs: Iterable[ProcessSigns]) -> Caller:
    """Decide from the signs of a process and its ancestors, the nearest first.

    A process with a neutral mark and no claim hosts agents for a home: what is above it started the host, not the agent.
    """
    claims, marks, is_below_host = set[str](), set[int](), False
    for sign in signs:
        if sign.mark == NEUTRAL_MARK and sign.claim is None:
            is_below_host = True
            break
        claims |= set() if sign.claim is None else {sign.claim}
        marks |= set() if sign.mark in (None, NEUTRAL_MARK) else {sign.mark}
    if len(claims) == 1 and marks <= {compute_mark(*claims)}:
        return read_claim(*claims)
    return UNKNOWN_AGENT if claims or marks or is_below_host else PERSON


def read_claim(claim: str) -> Caller:
    """The caller that a marker or a header names. Also an empty marker is a sign of an agent."""
    session, number = session_of_run(claim), claim.rpartition(".")[2]
    return Caller("agent", claim) if is_short_handle(session) and _NUMBER.fullmatch(number) else UNKNOWN_AGENT


def combine_callers(*callers: Caller) -> Caller:
    """Combine what several sources say about a caller: every sign of an agent counts."""
    callers = tuple([caller for caller in callers if caller is not PERSON])
    if not callers:
        return PERSON
    runs = {caller.run for caller in callers if caller.run}
    kinds = {caller.kind for caller in callers}
    if "unknown" in kinds or len(runs) > 1:
        return UNKNOWN_AGENT
    if runs:
        return Caller("agent", runs.pop(), tuple(sorted({pid for caller in callers for pid in caller.processes})))
    return next((known for known in (WORKER, UNSEEN) if known.kind in kinds), PERSON)


def identify_process() -> Caller:
    """Decide who runs this process."""
    own = ProcessSigns(os.environ.get(AGENT_MARKER), read_mark(os.getpid()))
    caller = decide_caller((own, *read_signs(os.getppid())))
    return replace(caller, processes=(os.getpid(),)) if caller.run else caller


def is_below(pid: int, leader: ProcessIdentity | None) -> bool:
    """Whether a process runs below the leader of a run, or in its process session, which no process can join from outside.

    Without a leader the agent works inside of a host, and what it starts has no mark; below other agents everything has one.
    """
    if leader is None:
        return all(sign.mark is None for sign in read_signs(pid))
    line = list(iterate_line(pid))
    return is_alive(leader) and any(leader.pid in (process, find_process_session(process)) for process in line)


def read_signs(pid: int) -> Iterator[ProcessSigns]:
    """The signs of a process and its ancestors, the nearest first, as far as the system shows them."""
    return (ProcessSigns(read_marker(process), read_mark(process)) for process in iterate_line(pid))


def iterate_line(pid: int) -> Iterator[int]:
    """A process and its ancestors, the nearest first, as far as the system shows them."""
    while pid > 1:
        yield pid
        pid = find_parent(pid)
