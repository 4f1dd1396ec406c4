"""Webhooks: new requests of the inbox are sent to addresses of the user, signed, and at least once."""
