"""The files for CI systems below docs/ci, validated and executed."""
