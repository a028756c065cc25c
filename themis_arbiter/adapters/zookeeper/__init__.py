"""Leases, election and fencing in ZooKeeper. What ZooKeeper and kazoo do against expectation is told where it matters."""
