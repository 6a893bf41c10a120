"""Tests of what is told to experiment trackers, by reading it back."""
