"""The shell around the core: takes events, steps, performs effects. Live and simulated runs use the same one."""
