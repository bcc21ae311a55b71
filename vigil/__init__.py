"""THE OPERATORS' TOOLS: the `vigil` command.

    __main__ ──▶ cli (what may be typed) ──▶ the modules here (what is done) ──▶ the other packages

Nothing here decides anything: commands publish, run the engine's and the projections' doers,
or read rows. Modules of `vigil.cli` import what they need when a command runs, so that
`vigil --help` answers at once.

| exit code | means |
| --- | --- |
| 0 | done |
| 1 | the surroundings: a server is away, nothing has that id or name, a check failed |
| 2 | the command line or the settings: it cannot work as it was typed |
| 3 | `node`, `up`: stopped, but some episode had to be left to its lease |
| 130, 143 | a second SIGINT or SIGTERM ended the program before it had stopped in order |
"""
