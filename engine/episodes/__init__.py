"""Episodes: the aggregate (`episode.py`, read it first), and what opens, fires and cancels one."""
