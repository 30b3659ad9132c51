"""How it looks: the structures, packets and names of MS-MQMQ and MS-DTYP, as bytes and back; no I/O."""
