"""Peers, each started on loopback, driven by a small C client, and ended by its process id."""
