"""Moves a stopped stack to another layout of its streams. Read `repartition.py` first."""
