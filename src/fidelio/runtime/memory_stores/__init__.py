"""Memory stores: text documents that programs and sessions share, with every version. The rules are pure; see `service`."""
