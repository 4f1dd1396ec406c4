"""Deployments: agents that begin sessions on a schedule or on demand."""
