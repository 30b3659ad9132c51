"""Transfer between queue managers: MS-MQQB, over TCP 1801, with pings over UDP 3527.

- `session` is one connection without its socket: bytes go in, events and deadlines come out.
- `transfer` assigns outgoing queues to sessions and passes received messages to the engine.
- `shell` has the sockets.
"""
