"""What tests of several parts share."""
