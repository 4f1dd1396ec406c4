"""Rules of workflow sessions: pure functions of the definition, the record, the input and the current time.

The engine opens no file, no socket and reads no clock, so a session can be replayed, simulated and tested with generated input.
"""
