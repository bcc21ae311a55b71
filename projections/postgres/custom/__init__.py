"""Projections of users on Postgres: their schemas, their projector, what a rebuild asks of them."""
