"""From the bytes of a file to plain data and the place of every key in it.

Three formats, one promise: a file is read whole or not at all, and what is wrong with it is said with line and column. Where a
decoder would accept a file and mean something else than its author, the reader refuses it.

Positions are worked out only when somebody asks, because a sound file is read a thousand times for each time it is complained
about. The decoders are imported with the first file of their format.
"""

from fidelio.definitions.reading.document import Document, Format, detect_format, read_bytes, read_text
from fidelio.definitions.reading.positions import Path, Position, Positions

__all__ = ["Document", "Format", "Path", "Position", "Positions", "detect_format", "read_bytes", "read_text"]
