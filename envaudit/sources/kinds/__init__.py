"""One module a kind of report; see `envaudit.sources`."""
