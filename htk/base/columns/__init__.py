"""Integer-exact operations on columns: intervals, groups, nesting, alignment.

In: NumPy and Arrow columns. Out: columns. May not import anything that knows traces.
"""
