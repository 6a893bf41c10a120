"""Tests of `import envaudit`."""
