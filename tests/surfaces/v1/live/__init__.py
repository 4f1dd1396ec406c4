"""The API as programs use it: `fidelio up` in a process of its own, and the official SDKs in Python and JavaScript."""
