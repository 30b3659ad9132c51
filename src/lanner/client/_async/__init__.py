"""The client, written once, in async form; `tools/generate_sync.py` makes `_sync` of it.

`queue_manager`, `queue`, `cursor` and `transaction` are the public classes. They work over the
protocols of `backend`, which `embedded` implements for a queue manager in this process,
`lanner_backend` for another Lanner, and `msmq_backend` for a queue manager of another maker. Two
modules exist in both colours by hand: `io`, how to wait for a disk, a lock, a message, several
things at once; and `outbox_io`, the socket of a `Sender`.
"""
