"""Lanes: order and limits for the episodes of one actor that hold in the whole cluster.

`lane.py` is the aggregate with the rule for who may run; one node at a time runs the
`scheduler.py`, with input from `intake.py` and effects from `effects.py`. Read `lane.py` first.
"""
