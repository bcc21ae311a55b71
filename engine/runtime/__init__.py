"""Plumbing of the engine that knows no feature. Read `leases.py` and `usercode.py` first."""
