"""Workflows carried out by agents: the one room that knows both the workflows and the orchestrator.

Plain code takes the part of the orchestrating agent: it enters an activity, gives it to a worker, waits, and takes the
transition that holds. It forgets nothing because it remembers nothing: where a run stands is in the ledger alone, in the
session of the workflow and in those of its workers, whose names follow from it.
"""
