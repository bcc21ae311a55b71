"""Plumbing of the engine that knows no feature. Read `leases.py` and `store.py` first."""
