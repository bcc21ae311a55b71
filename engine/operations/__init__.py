"""What people run beside nodes: sweep, reconcile, requeue, replay, and why no node acts.

Each reads the journal, decides by a pure rule and then acts; repeating one is safe. Read `sweep.py`
first.
"""
