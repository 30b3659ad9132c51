"""The data pipeline: queues as Arrow tables, through Arrow Flight and as Spark's format("msmq").

Each package imports only from those above it in this list. All of them need the packages of the
extra `spark`, except `flight.settings`. Nothing outside this folder imports pyarrow or numpy, so a
queue manager runs without them.

    columnar  messages as columns: their schema, reading, decoding, encoding, files of packets
    flight    the Arrow Flight service of a queue manager, and its client
    source    format("msmq") of Spark: options, partitions, offsets, readers and writers
    report    the HTML page that the report job writes
    jobs      the jobs of `lanner pipeline`, each from tables to tables
"""
