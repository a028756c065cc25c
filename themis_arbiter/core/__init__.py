"""The deterministic core: events in, effects out; no clock, IO, chance, threads or logging (ADR 0001)."""
