"""The RPC interfaces of a queue manager: management (MS-MQMR), remote read (MS-MQQP), the queue client's part of MS-MQMP."""
