"""Recall: finds earlier work, memory and learnings of the same agent, and names the call that shows more of each hit."""
