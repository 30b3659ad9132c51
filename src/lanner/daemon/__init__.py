"""`lanner serve`: settings, listeners, signals, metrics, shutdown."""
