"""The only package that talks to Postgres: everything that waits."""
