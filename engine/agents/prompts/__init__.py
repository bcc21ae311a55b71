"""What models were asked: what is kept and told of it, and how an agent stays what it was."""
