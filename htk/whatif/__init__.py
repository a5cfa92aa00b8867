"""What would change if: edits of the execution graph, replayed, with their uncertainty.

In: a trace and edits. Out: the predicted step with its prediction interval. May not import faces.
"""
