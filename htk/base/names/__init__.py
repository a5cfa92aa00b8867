"""Names of kernels and collectives, and what they mean: kind, family, library, type.

In: a name. Out: its meaning, or null. Imports nothing else of htk.
"""
