"""Answers about one GPU held to the truth: random traces whose maker knows it, and recorded ones.

`made` writes a random recording and keeps what caused what; `recorded` finds the same in a file by
plain loops. `expected` works out every answer from either, one event after the other, and `compare`
asks htk.
"""
