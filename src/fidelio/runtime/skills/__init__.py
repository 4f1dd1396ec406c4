"""Skills: instructions in files that an agent reads when it needs them."""
