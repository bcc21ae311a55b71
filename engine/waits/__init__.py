"""Waits: approvals and signals that episodes wait for, and the answers to them.

Read `wait.py`, what an episode waits for, and `answer.py`, whether an answer is valid, first.
"""
