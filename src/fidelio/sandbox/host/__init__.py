"""The host of the sandboxes of a home: the process that owns them, and the client through which other processes use them."""
