"""What would change if: edits of the execution graph, replayed."""
