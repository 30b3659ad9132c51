"""The blocking client, made from `_async` by `tools/generate_sync.py`, except `io`, `outbox_io`."""
