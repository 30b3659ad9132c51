"""The data pipeline: messages as rows of Arrow tables, the Flight service, files of packets.

Needs the packages of the extra `spark`. Nothing outside this folder imports them, so a queue manager runs without.

    schema         the row of a message: every column, its types, and which of them a caller wants
    decode         packets to Arrow batches, a whole batch at a time
    encode         Arrow batches to messages
    packet_files   a file of packets: `lanner export` and `lanner import`
    flight         the Arrow Flight service of a queue manager; its docstring is the reference of the protocol
    flight_client  the same for callers, in Python
    source         format("msmq") of Spark, with its options; on it batch_reader, stream_reader and writer
    stream_driver  what a stream does in the driver: where it begins, how far it reads, what it has processed
    settings       of the Flight service; the only module that can be imported without those packages
"""
