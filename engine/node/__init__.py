"""Composition: a node starts, supervises and stops the consumers of its actors and workflows.

Read `node.py` first; `supervisor.py` starts and replaces the consumers while the node runs.
"""
