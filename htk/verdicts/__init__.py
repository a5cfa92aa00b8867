"""What follows from answers and predictions: causes, a verdict, checks, claims, costs, history.

In: a trace, its answers, what-ifs and plans. Out: tables of findings with their evidence.
May import all but dashboard and faces.
"""
