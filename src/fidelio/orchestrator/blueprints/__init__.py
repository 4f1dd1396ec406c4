"""Blueprints: definitions of agents, read from the project, the user's home and the bundled library.

`catalogue.open_blueprints` opens them all. This module imports nothing: the processes of agents need only the model.
"""
