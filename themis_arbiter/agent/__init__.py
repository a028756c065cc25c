"""The app side of Themis. Import-light on purpose: a task's start pays for everything that is imported here."""
