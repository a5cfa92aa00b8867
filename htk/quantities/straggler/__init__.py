"""Operation-level rows of a whole job → dependencies, replays and slowdowns.

In: the table `job_operations`. Out: step times under changed durations, by step. It knows no
analysis and no face.
"""
