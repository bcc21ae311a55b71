"""What people do in a real browser, a file for each thing."""
