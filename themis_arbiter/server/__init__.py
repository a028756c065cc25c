"""The arbiter as a process: settings, HTTP port and the one place where its parts are put together."""
