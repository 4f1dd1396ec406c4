"""Wakes: bounded activations of an agent. One reads what is pending, calls the model with tools in rounds, and commits."""
