"""What runs on the node: read its environment, judge nothing, change nothing.

This room imports nothing of the house but itself, and nothing outside the standard library, so
that a node needs a Python 3.8 and nothing else.
"""

from __future__ import annotations


class Refused(Exception):
    """The probe must not run as it was asked to; the text says why and what to do instead."""
