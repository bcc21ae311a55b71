"""Commands about the stack itself, and about the app before it runs."""
