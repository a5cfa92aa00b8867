"""Why a job hangs or died, from whatever it left behind: findings and the evidence under them.

In come tables of flight recorders, watchdog, NCCL's log, RAS and Python stacks; out go findings,
causes first. Imports no analysis and no parser.
"""
