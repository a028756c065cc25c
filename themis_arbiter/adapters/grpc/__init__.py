"""The arbiter's gRPC services: the ResourceManager's stream, the agents' calls and the views for people.

Everything that comes in is parsed here, once, into the core's values; past this package nothing checks it again.
"""
