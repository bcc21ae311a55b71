"""Starts, supervises and stops the consumers of actors and workflows. Read `node.py` first."""
