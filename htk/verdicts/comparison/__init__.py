"""What changed between two recordings: each cause, on which ranks, and its part of the change.

In: tables of two recordings. Out: causes ordered by what a replay of the step says they cost, and
the verdict in a sentence. May not import faces.
"""
