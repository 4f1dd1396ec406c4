"""The executor `local-model`: a small language model on this machine."""
