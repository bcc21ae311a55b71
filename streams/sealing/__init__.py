"""Ports that keep what is written about subjects of data encrypted, each with its own key.

Each wraps a port, in memory or on a server: what goes through it is encrypted before it is
encoded, so that digests, archives and backups are of encrypted bytes, and decrypted after it is
decoded. A stack that encrypts nothing has none of them.

    sealed      events, with their contents in the box and out of the events themselves
    opened      the events as they were
    erased      the key is gone: the events, with `[erased]` and `{"$erased": true}` for contents

Whose a commit is follows from its events (`subjects.py`), or from the aggregate that it belongs
to, which is looked up once. What has no subject, or one of a kind that nobody named, stays plain.
"""
