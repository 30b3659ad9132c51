"""Transfer between queue managers: MS-MQQB, over TCP 1801, with pings over UDP 3527.

`session` is one connection without its socket: bytes in, events out, deadlines asked for.
`transfer` decides which session carries which outgoing queue and takes what arrives to the engine.
`shell` is the sockets.
"""
