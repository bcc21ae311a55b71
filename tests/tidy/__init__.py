"""What keeps the repository tidy."""
