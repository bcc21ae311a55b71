"""Moves a stopped stack to another number of partitions. Read `repartition.py` first."""
