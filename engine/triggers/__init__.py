"""Triggers: which causes open episodes. Read `rules.py` and `engine.app.triggers` first."""
