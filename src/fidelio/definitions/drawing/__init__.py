"""Draw workflows as Mermaid, SVG and plain text, without external programs."""
