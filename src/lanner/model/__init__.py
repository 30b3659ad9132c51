"""What there is: the abstract data model of MS-MQDMPR 3.1.1 and 3.2.1, its enumerations and status codes."""
