"""Orders of people: modes, pauses, resets of circuit breakers, layouts."""
