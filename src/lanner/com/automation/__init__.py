"""Automation, for servers and clients (MS-OAUT): values, their encoding, calls.

values             VARIANT and SAFEARRAY as Python values (2.2.23 to 2.2.30)
types              their encoding in NDR (2.2.23 to 2.2.34)
coercion           conversion of VARIANTs to other types (3.1.4.4.4)
stubs              the encoding of parameters, and calls through the vtable (MS-DCOM 3.1.1.5.4)
dispatch           IDispatch for every served object (3.1)
enumerators        IEnumVARIANT (3.3), IEnumConnections, IEnumConnectionPoints
connection_points  served objects that have event sinks (MC-MQAC 3.16.4.5, 3.16.4.6)
"""
