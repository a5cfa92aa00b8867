"""Bytes on their way in: paths, archives and URLs, decompression, and the cache of tables.

In: what a user names. Out: open sources and stored tables. May not import parsers or analyses.
"""
