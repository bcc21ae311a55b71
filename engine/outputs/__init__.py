"""Outputs: proposed by episodes, approved by people, delivered by adapters.

`output.py` is the aggregate, `decide.py` the rule for the next move, `deliver.py` makes it. Read
`output.py` and `decide.py` first.
"""
