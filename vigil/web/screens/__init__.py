"""The screens of the console: a file for each noun."""
