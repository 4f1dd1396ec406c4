"""Read definition files: parse bytes into plain data with the position of every key.

A file is read completely or refused, and errors have a line and a column. If a decoder would accept a file with another meaning
than it appears to have, the reader refuses it.

Positions are computed on demand, because valid files are read much more often than they are reported. The decoders are imported
with the first file of their format.
"""

from fidelio.definitions.reading.document import Format, ParsedDocument, detect_format, read_bytes, read_text
from fidelio.definitions.reading.positions import Path, Position, Positions

__all__ = ["Format", "ParsedDocument", "Path", "Position", "Positions", "detect_format", "read_bytes", "read_text"]
