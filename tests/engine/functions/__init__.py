"""Functions as strategies."""
