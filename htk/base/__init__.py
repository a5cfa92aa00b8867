"""What everything stands on: vocabulary, errors, exact columns, bytes and the cache, workers.

In: files, columns, functions and items. Out: the same, read, kept, grouped, named, spread.
May import nothing of htk outside itself.
"""
