"""Dead letters: work that could not be done, stored with the reason until a person decides.

`letter.py` is the aggregate, `write.py` writes one. Requeuing is `engine.operations.dead_letters`.
"""
