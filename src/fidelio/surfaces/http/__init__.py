"""Streamable HTTP server for the tools, built on the official SDK. Imported lazily, because importing the SDK takes 1.3 s."""
