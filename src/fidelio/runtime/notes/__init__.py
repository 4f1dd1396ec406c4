"""Notes of the runtime: short hints that a wake adds to the message of the model."""
