"""The rules of a workflow session, pure: functions of the definition, the record, the input and the moment.

No file, no socket and no clock in here. That is why a session can be replayed, simulated and tested by property.
"""
