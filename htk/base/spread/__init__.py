"""Where work is done: on threads, in processes, on a Ray cluster; and how much memory it may take.

In: a function and a list of items. Out: a result for each, in order. May not import what it runs.
"""
