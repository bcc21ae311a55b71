"""Workflows: steps of several actors as a graph, and their instances. Read `instance.py` first."""
