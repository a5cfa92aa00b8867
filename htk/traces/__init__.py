"""Recordings: files joined in a `Trace`, two of them compared, their timeline.

In: paths. Out: a `Trace` with its tables, selections and coverage; spans in lanes; differences.
May import base, physics, quantities and parsers.
"""
