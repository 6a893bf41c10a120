"""The tests; a package so that they can share the lab and the stand-ins."""
