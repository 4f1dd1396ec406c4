"""Operating system processes: spawning, marking, finding, watching and ending them."""
