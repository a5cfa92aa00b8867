"""SQL over the tables and analyses of a trace, in a fenced DuckDB.

In: a statement and a trace. Out: `Result`. May not import faces.
"""
