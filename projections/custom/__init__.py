"""Projections of users: what they declare, and how their changes become statements. Pure."""
