"""Everything that wakes an actor and everything that holds it back, as one table of scenarios.

`scenario` has the words, `triggers`, `times` and `gates` the table, `stage` plays a scenario with
the nodes of the engine: on ports in memory and in simulated time, or on a real server. The tests
play the whole table in simulated time; the short scenarios on a server, too; and some of them
again and again, with a node dying at every moment at which one can.
"""
