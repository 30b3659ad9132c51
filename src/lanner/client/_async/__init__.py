"""The client, written once in async form; `tools/generate_sync.py` makes `_sync` from it.

`queue_manager`, `queue`, `cursor` and `transaction` are the public classes. They work over the
protocols of `backend`, which are implemented by `embedded` for a queue manager in this process,
`lanner_backend` for another Lanner, and `msmq_backend` for a queue manager of another vendor. Two
modules are written by hand in both forms: `io`, which waits for a disk, a lock, a message, or
several things at once; and `outbox_io`, the socket of a `Sender`.
"""
