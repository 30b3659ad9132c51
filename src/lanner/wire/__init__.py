"""Packets, structures and names of MS-MQMQ and MS-DTYP: conversion from and to bytes; no I/O."""
