"""What a whole job takes: goodput, wall time, money and energy, with their intervals.

In: given numbers, logs and recordings. Out: results. Imports no face and no `claims`.
"""
