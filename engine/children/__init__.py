"""Episodes that an episode starts and waits for: the rules, and the collection of their ends."""
