"""What an agent remembers: the notes of a session, the memory file that its sessions share, and learnings."""
