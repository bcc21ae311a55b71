"""Code of users: called, contained, timed, cut off, left. Read `call.py` first."""
