"""An engine in a process: its runtime, its timers, and how callers wait for it.

The engine does no I/O and has no threads. This package gives it a store, clocks, a timer thread and
group commit, and offers the idioms that every protocol above it uses:

- `Change` (change.py): change something under the store's lock, then wait until it is durable.
- `Read` (reads.py): read a message, wait for one if there is none, then take it or give it back.
- `Operations` (operations.py): the operations of a program on a queue manager, as one identity.
- `QueueNames` (names.py): every spelling of a queue's name.
- `LoopThread` (loop_thread.py): an event loop in a thread of its own.
- `Budget` (budget.py): the limits on what peers may cost, in total and each. `Acceptor`
  (accepting.py) admits their connections.
"""
