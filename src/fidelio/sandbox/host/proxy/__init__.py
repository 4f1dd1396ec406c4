"""The network proxy of a sandbox: the only way out for the networks `limited` and `unrestricted`."""
