"""Lanes: order and limits for one actor's episodes in the whole cluster. Read `lane.py` first."""
