"""Questions by name: the options checked, the analysis run, its coverage beside the answer.

In: a trace and the name of an analysis. Out: `Result`. May not import faces.
"""
