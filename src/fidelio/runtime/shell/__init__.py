"""The shell of runtime sessions: 15 tools for it and `bash`. Directory, variables and history are durable; a live shell is not.

live      what the sandbox says          durable_shell (above)  what the record says
settle    compares the two               history                commands in the ledger
variables names and encrypted values     plans, views           what the caller is told
commands, control, reading               the tools
"""
