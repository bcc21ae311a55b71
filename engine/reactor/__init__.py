"""What follows from a commit, published once it is durable."""
