"""The verdict on a recording (`summary`) and its fitness for questions (`doctor`).

In: a trace and the answers to its questions. Out: findings in order of weight. May not import
faces.
"""
