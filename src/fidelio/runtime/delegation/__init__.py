"""Delegation: an agent gives a bounded task to a session of its own, which works in parallel and has at most its rights."""
