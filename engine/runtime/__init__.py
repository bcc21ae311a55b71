"""The doers: each follows the log, asks a rule, appends what it says, and acknowledges.

`node` holds them all; they do not know each other. `gate` turns events into episodes,
`runner` takes episodes from the inbox and drives them with the help of `scribe` (writes
the journal), `performer` (calls user code), `applier` (carries out findings) and `herald`
(tells the world); `keeper` keeps the node's leases alive and `rescuer` calls for the
recovery of those that lapsed. `undertaker` keeps what cannot be done, and people settle it
through the same doer; `sweeper` and `requester` are sent out by people alone.
"""
