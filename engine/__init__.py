"""The engine: runs actors as event-sourced episodes. One folder per feature.

`app` is what users write; `runtime` is plumbing that knows nothing of the domain; `node` composes.
What any function here may raise is at the top of `engine/errors.py`.
"""
