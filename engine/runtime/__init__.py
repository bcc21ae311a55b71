"""Plumbing of the engine, without a word of the domain: tasks, slots, permits, leases, retries.

Features build on it; it imports nothing of them but `engine.app`. Read `leases.py` and
`usercode.py` first.
"""
