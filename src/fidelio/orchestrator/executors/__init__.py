"""Adapters to the kinds of agents, all behind `contract.Executor`."""
