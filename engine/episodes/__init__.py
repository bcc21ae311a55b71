"""Episodes: the aggregate, and what opens, fires, cancels, wakes and recovers one.

`episode.py` has the state and the transition table: read it first. Running an episode is
`engine.execution`.
"""
