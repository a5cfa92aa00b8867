"""Tables made once from the tables of a recording: links, windows, matches, waits, clocks.

In: parsed tables. Out: derived tables, cached and shared by all questions. May not import
measures, analyses or anything that presents.
"""
