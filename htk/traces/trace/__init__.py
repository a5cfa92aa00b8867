"""The files of a recording as one Trace: opening, selections, coverage.

In: inputs of a user. Out: `Trace`, whose tables cover all ranks. May not import analyses.
"""
