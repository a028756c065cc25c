"""Simulation: virtual time, and the simulated ResourceManager that also runs in real time where there is no YARN."""
