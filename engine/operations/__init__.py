"""What people run beside nodes: sweep, reconcile, requeue, replay, and why nobody answers.

Each operation reads the journal, decides by a pure rule and then acts; repeating one is safe.
`sweep.py` is the simplest to read first.
"""
