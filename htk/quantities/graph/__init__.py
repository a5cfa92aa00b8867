"""A step as an execution graph, its replay, and the test whether the replay is faithful.

In: tables of one step. Out: start and end of each activity, and a verdict. May not import
analyses or what-ifs.
"""
