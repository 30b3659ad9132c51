"""The blocking client: `tools/generate_sync.py` makes it of `_async`, but for `io`, `outbox_io`."""
