"""The server side of DCOM (MS-DCOM 3.1): clients find, activate, call and release objects.

listener       serves all of these on their ports; the daemon starts it
resolver       IObjectExporter: OXID resolution, ServerAlive, pings (3.1.2.5.1)
activator      IActivation and IRemoteSCMActivator (3.1.2.5.2)
exporter       the tables of objects, interfaces and references, and the dispatch of calls (3.1.1)
rem_unknown    IRemUnknown and IRemUnknown2 (3.1.1.5.6, 3.1.1.5.7)
ping_sets      the objects that clients ping (3.1.2.6); no I/O
holdings       limits on the objects and octets that clients hold; not in the specification
"""
