"""Waits: approvals and signals that episodes wait for, and the answers to them.

`wait.py` says what an episode waits for and when it is due; `answer.py` decides whether an answer
stands. Read them first.
"""
