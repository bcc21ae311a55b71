"""Nodes of a stack: which are up, what they may do, and pauses.

`nodes.py` is what a node reports, `members.py` reports and reads it; `modes.py` decides what a node
may do, `mode_watch.py` applies that.
"""
