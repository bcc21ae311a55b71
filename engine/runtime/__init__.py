"""Plumbing of the engine that knows no feature: tasks, slots, permits, leases, retries.

Features build on it; it imports nothing of them but `engine.app`. Read `leases.py` and
`usercode.py` first.
"""
