"""Apps to read, run and copy."""
