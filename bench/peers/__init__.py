"""The same work on other systems, each in an environment of its own under `.bench-peers`.

    dbos_load          workflows of DBOS, in the process that asks for them: it is a library
    restate_load       a client of Restate ──HTTP──▶ its server ──HTTP/2──▶ restate_handlers
    systems            starts them, with their servers, for whoever measures

The work: five durable steps that each return a small object, as in `steps_strict` of
`bench/app.py`. Both peers sync to disk before they go on, as they do by default.
"""
