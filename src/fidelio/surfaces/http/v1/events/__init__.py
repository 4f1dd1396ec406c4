"""Events of sessions on the wire: rendering, lists, and streams that can be resumed."""
