"""How the console looks: the frame of a page, its parts, charts and graphs. Pure."""
