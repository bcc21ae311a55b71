"""Who may ask anything of the console: signing in, and what stands before every address."""
