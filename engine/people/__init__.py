"""People and programs: who they are, what shows that, and what they may do."""
