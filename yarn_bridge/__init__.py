"""The ResourceManager's voice: carries its state to the arbiter and the arbiter's leases back."""
