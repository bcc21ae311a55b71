"""Everything that wakes an actor and everything that holds it back, as one table of scenarios.

`scenario` has the words, and `triggers`, `times`, `gates`, `causes` and
`limits` are the table. `stage` plays
a scenario with the nodes of the engine, in a `place`: on ports in memory and in simulated time, or
on a real server. The tests play the whole table in simulated time, and the short scenarios on a
server, too. Other stories are played again and again, with a process dying at each moment at which
one can.
"""
