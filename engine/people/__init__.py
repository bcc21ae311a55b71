"""People and programs: who they are, and what they may do."""
