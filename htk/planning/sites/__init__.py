"""A site's own figures, kept in one TOML file, and plans by them.

In: a file. Out: a site. Imports plans, base and physics.
"""
