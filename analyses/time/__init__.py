"""Questions about time."""
