"""The screens about episodes: all of them, one, its agents, two side by side."""
