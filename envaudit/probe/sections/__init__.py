"""One module a subject; the file's name is its registration (see `envaudit.probe.registry`)."""
