"""The version of envaudit, read by the build and carried in every fingerprint."""

__version__ = "0.1.0"
