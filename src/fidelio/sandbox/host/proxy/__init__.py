"""The network proxy of a sandbox: the only connection to others in the networks `limited` and `unrestricted`."""
