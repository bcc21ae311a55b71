"""Outputs: proposed by episodes, approved by people, delivered. Read `output.py` first."""
