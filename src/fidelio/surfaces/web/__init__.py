"""The web page: what runs, what waits for a person, and what is proven. Server-rendered; calls services and has no rules."""
