"""Questions about comm."""
