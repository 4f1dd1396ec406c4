"""Model APIs behind the protocol of `fidelio.providers.model`. Nothing here knows sessions, tools or events."""
