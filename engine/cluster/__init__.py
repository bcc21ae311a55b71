"""Nodes of a stack: which are up (`nodes`, `members`), what they may do (`modes`), and pauses."""
