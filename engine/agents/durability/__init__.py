"""Joins a run of an agent to the journal: each thing that it does outside is a unit of it."""
