"""Plans of described jobs, held against published steps."""
