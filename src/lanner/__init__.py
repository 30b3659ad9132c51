"""Lanner: a message queue manager that speaks Microsoft Message Queuing's own protocols."""

__version__ = "0.1.0.dev0"
