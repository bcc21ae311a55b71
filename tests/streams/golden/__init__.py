"""The bytes that each tag was released with, one file per tag, never changed."""
