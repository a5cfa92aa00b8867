"""A published or in-house number, held against what bounds it: impossible, needs more, plausible.

In: a claim in words or numbers, and a recording or a described job. Out: a result with a row for
each check. Imports no face and no `economics`.
"""
