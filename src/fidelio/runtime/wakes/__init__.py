"""Wakes: bounded activations of an agent. A wake reads what is pending, calls the model with tools in rounds, and commits."""
