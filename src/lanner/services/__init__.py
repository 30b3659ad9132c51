"""The RPC services of a queue manager.

Covers management (MS-MQMR), remote read (MS-MQQP, MS-MQRR), the queue client (MS-MQMP), and
Lanner's own interface with the documents that it serves.
"""
