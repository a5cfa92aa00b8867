"""SQL over the tables and analyses of a trace, in a fenced DuckDB in a process of its own.

In: a statement and a trace. Out: `Result`. May not import faces.
"""
