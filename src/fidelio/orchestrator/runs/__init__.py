"""Runs of agents: admission, preparation, supervision and results, in the process that hosts them."""
