"""The HTTP API and the web console, in a process of their own.

It connects to the queue manager with the identity of whichever user is logged on.

- `server`: the process, from its listening socket to its end; the daemon starts it with
  `python -m lanner.http`.
- `log_ons`: how a user logs on to the queue manager, through the daemon or to another host.
- `sessions`: the authentication of requests, and the `QueueManager` of each user.
- `guards`: checks before a request is processed, and headers of every answer.
- `problems`: errors as documents of RFC 9457.
- `app`: the application; its routes are in `api` and `console`.
"""
