"""DCE/RPC (C706 with MS-RPCE).

PDUs, NDR and NDR64, authentication, association groups, context handles, server and client.
"""
