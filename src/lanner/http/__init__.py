"""The HTTP API and the web console: a process of its own, which reaches the queue manager as the users who log on to it.

- `server`: the process, from its listening socket to its end; `python -m lanner.http` is how the
  daemon starts it.
- `log_ons`: how a user logs on to the queue manager, through the daemon or to another host.
- `sessions`: who makes a request, and the `QueueManager` of that user.
- `guards`: what is checked before a request is looked at, and what every answer says.
- `problems`: errors as documents of RFC 9457.
- `app`: the application; its routes are in `api` and `console`.
"""
