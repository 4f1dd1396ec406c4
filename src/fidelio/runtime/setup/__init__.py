"""The setup of an agent in a session: everything that decides how it works, apart from what it has learned. For comparisons."""
