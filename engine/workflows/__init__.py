"""Workflows: steps of several actors as a graph, and the life of each instance.

`instance.py` is the aggregate, `decide.py` and `steps.py` its rules, `effects.py` what follows from
a commit, `worker.py` handles the commands. Read `instance.py` first; what users declare is
`engine.app.workflow`.
"""
