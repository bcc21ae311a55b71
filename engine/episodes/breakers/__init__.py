"""Circuit breakers: when one opens, and where all nodes see it."""
