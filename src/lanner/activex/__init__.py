"""The object model of Message Queuing for remote clients: one module for each coclass (MC-MQAC section 3)."""
