"""Letting go what is old: for how long things are kept, what is held, and the run that does it."""
