"""The abstract data model of MS-MQDMPR 3.1.1 and 3.2.1, with its enumerations and status codes."""
