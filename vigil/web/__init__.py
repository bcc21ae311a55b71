"""The console: pages for people, and an API for programs, on one process."""
