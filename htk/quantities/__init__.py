"""What several questions share: derived tables, measures, the execution graph, jobs' operations.

In: the tables that parsers fill. Out: tables and arrays that depend on no question.
May import base and physics.
"""
