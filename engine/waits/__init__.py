"""Waits: approvals and signals that episodes wait for, and their answers. Read `wait.py` first."""
