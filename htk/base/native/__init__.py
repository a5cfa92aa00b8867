"""The compiled parts. Each is optional, and has a twin in Python beside its caller."""
