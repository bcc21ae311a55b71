"""Workflows: steps of several actors, declared as a graph, and the life of each instance. Pure."""
