"""`fidelio runtime`: agents of the runtime and their sessions."""
