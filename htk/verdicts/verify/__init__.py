"""Is this number right? A second, independent reading, and identities that answers must keep.

In: the files of a trace and htk's own answers to them. Out: one line for each check. Imports
nothing of the parsers, the tables and the analyses but what everyone may ask of them.
"""
