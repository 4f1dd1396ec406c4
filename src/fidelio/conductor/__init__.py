"""Runs workflows with agents; the only package that uses both the workflow service and the orchestrator.

Plain code does what an orchestrating agent would do: it enters an activity, gives it to a worker, waits for the report and
takes the transition whose condition is true. It keeps no state of its own. The ledger holds the state of a run, in the
session of the workflow and in the sessions of its workers, whose names are derived from it.
"""
