"""JSON that several surfaces share: the command line, the tools, the web page and the API have the same keys."""
