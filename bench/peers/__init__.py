"""Peers: each is started here on loopback, driven by a small C client of ours, and ended by its process id."""
