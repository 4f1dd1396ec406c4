"""The command line. `main` is the root command; the other modules define the commands, by subject."""
