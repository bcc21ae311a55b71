"""New rows beside the live ones, from the journal, and the swap of those that differ.

    history ──commits──▶ folds ──▶ fresh tables ──compare──▶ differences ──one transaction──▶ tables

`fresh` makes tables in a schema of their own, `catch_up` fills them. `rebuild` finds what differs
while both are at one position, and puts that into the tables that people read. Readers see all of
it at once or nothing, whatever transaction they are in: no table is locked or renamed, and rows of
other stacks are not touched.
"""
