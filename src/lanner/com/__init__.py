"""DCOM and automation: activation, the object resolver, remote objects, dispatch (MS-DCOM, MS-OAUT). It knows nothing of queues."""
