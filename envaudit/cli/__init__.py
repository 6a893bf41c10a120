"""The command line: one module a command, wiring between the rooms, the only `sys.exit`."""
