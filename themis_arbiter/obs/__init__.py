"""What people see of a running arbiter: metrics and logs."""
