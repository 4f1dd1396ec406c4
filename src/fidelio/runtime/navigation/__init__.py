"""Tools by which an agent finds its way: its setup, its sessions, their logs and its context. They read, and change nothing."""
