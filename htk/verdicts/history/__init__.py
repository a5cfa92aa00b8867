"""What many runs cost, kept over time: each run's facts as Parquet in one folder or bucket.

In: recordings, tags, judgements of users. Out: lists of runs, changes over runs, the last good runs
as the base of a gate. May not import faces.
"""
