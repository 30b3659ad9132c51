"""Identities, access checks, queue security, users, keys and certificates.

MS-MQDMPR 3.1.1.1, 3.1.7.1.3.1, MS-MQMQ 2.2.23-27.
"""
