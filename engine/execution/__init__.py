"""Running an episode: receive its command, claim it, drive the strategy, conclude, take over.

Read `run.py` first: one node's attempt from the fence to the last public event.
"""
