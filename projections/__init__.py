"""The read models: what the journal says, as rows that people query with SQL.

    follower ──commits──▶ folds: episodes | findings | outputs | … ──changes──▶ one transaction
    watch ────claims────▶ claims ────────────────────────────────────────┘      rows + checkpoint

**Rules are pure.** `episodes`, `findings`, `outputs`, `lanes`, `workflows`, `definitions`,
`dead_letters` and `claims` fold commits into row changes as data (`rows`), for each aggregate by
itself (`project`). `postgres/` waits and writes.

**Every commit is applied once.** Rows and the checkpoint move in one transaction, and the
checkpoint moves only from where this projector left it. A second projector is refused by that check
(`ProjectorFenced`), whatever it believes about leases. Each partition of a journal is a projection
of its own.

**Rows are only a view.** They can be dropped and made again from the journal, byte for byte (except
work claims, whose bucket forgets). So Postgres need not sync each transaction: a crash takes rows
and checkpoint back together, and the projector continues from there.

| failure | consequence |
| --- | --- |
| Postgres is away | tried again with growing delays; the log keeps what is missing |
| NATS is away | the rows stand still until it is back |
| a commit cannot be decoded | its projection stops before it, with one error in the log |
| Postgres refuses a row | its projection stops before the batch, with one error in the log |
| the log is another one | its projection stops, with one error that says what to do |
| the projector's node dies | its lease lapses and another node continues |
| a paused projector wakes up | the checkpoint has moved: it stops and stands by |
"""
