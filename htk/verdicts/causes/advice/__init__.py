"""Rules of `recommendations`, by what they rest on.

In: tables, and columns of measures. Out: findings. May not import `recommendations`.
"""
