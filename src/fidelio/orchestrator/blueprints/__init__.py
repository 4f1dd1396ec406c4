"""Blueprints: what agents are started from, read from the project, the user's home and the bundled library.

`catalogue.open_blueprints` opens them all. Nothing is imported here: the processes of agents need the model and nothing else.
"""
