"""Generated from proto/ by themis_arbiter.gen.regenerate. Do not edit."""
