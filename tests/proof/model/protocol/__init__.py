"""The protocol of leases and of repetition, small enough to try every interleaving of it."""
