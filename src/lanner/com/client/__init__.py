"""The client side of DCOM (MS-DCOM 3.2): objects of other computers.

Programs use it through `automation`. The server uses it for the event sinks of its clients.

automation        `connect()`: objects by name, like pywin32; blocking
event_sinks       sinks made from Python functions event_thread      the thread that runs them
python_values     conversion between Python values and VARIANTs client            `ComClient`:
activation, references and releases, the ping loop; asyncio activation        calls of an activator
(3.2.4.1.1) calls             calls of resolvers, activators and objects (3.2.4.2) connections
RPC connections, shared by address and authentication level remote_interface  one interface of a
remote object dispatch          IDispatch of a remote object (MS-OAUT 3.1.4.3, 3.1.4.4) streams
IPersistStream of a remote object, and the IStream that it writes to tables            resolvers,
exporters and interfaces in use (3.2.1) pings             the pings to send (3.2.6.1); no I/O
exporter          objects that this client exports, such as its sinks
"""
