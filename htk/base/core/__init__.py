"""Contracts of parsers and analyses, and small helpers that every package may use.

In: nothing. Out: `Analysis`, `Parser`, charts, formatting. May not import Arrow tables' packages:
only `errors` and `schema` stand below.
"""
