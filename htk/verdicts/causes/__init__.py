"""Questions about causes."""
