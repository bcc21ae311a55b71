"""Tools that come with Vigil: requests over HTTP, and queries in SQL that only read.

Each is a function that returns a tool for what an app allows it: hosts, or one database. What it
needs is imported when it is first called.
"""
