"""What a tool is: its name, its typed parameters, its handler and its outcome."""
