"""Two recordings side by side, baselines in a file, limits for a gate.

In: tables of two recordings. Out: differences with their significance. May not import faces.
"""
