"""How the RPC interfaces look: every method with its parameters, from the IDL of MS-MQMR, MS-MQQP, MS-MQMP and MS-MQMQ.

Names are those of the IDL in snake_case, prefixes and all, so that the text of a method can be read
beside its code.
"""
