"""Workflows: steps of several actors as a graph, and the life of each instance.

Read `instance.py`, the aggregate, first; `worker.py` handles the commands. What users declare is
`engine.app.workflow`.
"""
