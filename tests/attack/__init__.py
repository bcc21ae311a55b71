"""One fault at a chosen message about one episode, for every message and every kind of fault.

    python -m tests.attack --faults 1000
    python -m tests.attack --story people --point episode.3 --fault drop

Nodes are real `vigil node` processes, two for each case, behind wires that count what they publish
about the episode under attack. At the chosen message the node is killed, stopped or frozen; then
everything must end as if nothing had happened. `stories` says what is run and how it has to end,
`faults` what goes wrong, `interception` counts and strikes, `pair` has the nodes, `people` answers,
`evidence` reads what is left, and `verdict` says what of it is wrong.
"""
