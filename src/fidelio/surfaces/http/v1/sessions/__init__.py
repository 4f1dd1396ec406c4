"""Sessions and their threads on the wire."""
