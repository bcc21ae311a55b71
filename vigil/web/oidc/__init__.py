"""Logins by OpenID Connect: the provider vouches for people, and the console lets them in."""
