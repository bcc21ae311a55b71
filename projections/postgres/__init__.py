"""Postgres, spoken here and nowhere else: everything that waits, on rules that do not."""
