"""`vigil.Client`: what the commands do, as calls.

    client ──▶ connections (opened by the first call that needs them)
          └──▶ one file for each noun of the commands

A call that reads asks the rows, unless it says that it reads the log. One that changes something
puts a request on the log, with the name of a person and a reason. `vigil/errors.py` has the errors.
"""
