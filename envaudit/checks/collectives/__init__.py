"""Collectives whose right result every rank knows without communication, and an end whatever dies."""
