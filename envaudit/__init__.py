"""envaudit: does every node run the environment we locked, and compute the right numbers."""

from envaudit._version import __version__

__all__ = ["__version__"]
