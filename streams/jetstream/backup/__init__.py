"""Backups of a whole stack while it runs, and restoring one: files, and the server's snapshots.

    FOLDER/<time>/manifest.json         what it is, with the digest of each file
    FOLDER/<time>/<stream>.snapshot     a stream as the server has it: messages with their sequences
                                        and times, and how far its consumers are
    FOLDER/<time>/<stream>.<n>.commits  what came to it since, if the backup is incremental

A backup is whole in itself. An incremental one shares the files of the one before that are still
true, as hard links, so either may be deleted. It is made in a folder called `.partial…`, which gets
its name once all is on the disk.

Streams are read one after the other, in an order in which what is missing comes again: what
remembers how far somebody is comes before what it follows from, and queues before the log that has
what was done. So a restored stack goes on as after a crash of all its nodes.
"""
