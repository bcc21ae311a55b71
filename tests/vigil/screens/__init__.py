"""What people see in a terminal: every list and `show` command, at 80 and at 120 columns.

`python -m tests.vigil.screens` writes the files anew; look at what has changed before you commit.
"""
