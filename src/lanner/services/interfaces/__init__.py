"""RPC interface definitions from the IDL of MS-MQMR, MS-MQQP, MS-MQRR, MS-MQMP and MS-MQMQ.

Names are those of the IDL in snake_case, prefixes included, so that code can be read beside the
text of a method.
"""
