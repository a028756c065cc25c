"""What `make run` is made of: the sample apps, the cluster that they run on, what is shown of it, and the closing account."""
