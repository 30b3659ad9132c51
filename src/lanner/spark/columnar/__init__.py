"""Messages as columns: conversions between the bytes of a store and Arrow batches, both ways.

`packet_source` defines how messages are read as columns. Every reader of messages implements that
one interface, and `decode` turns what it yields into Arrow batches.

    schema        the row of a message: every column, its type, and how a caller selects columns
    packet_source the interface for reading messages as columns, and its one fallback
    reading       a queue of a store as packets and as Arrow batches
    scans         a range of a queue, batch by batch, here and in reader processes
    filters       conditions that the queue manager evaluates
    values        the column `value`: decoded bodies
    shaping       filtering of decoded rows, and the column `value`
    ranges        cuts a range of a queue into parts by the sizes in its index
    gathering     reads many stored messages at once from the pages of LMDB's file
    pages         the layout of LMDB's file
    checksums     the CRC-32 of many pieces, computed from the CRC-32 of each
    events        the event log as Arrow batches
    event_names   the name under which the event log is read
    packets       locates the headers of many packets
    vectors       numpy and Arrow operations on fields of many packets
    decode        packets to Arrow batches
    rows          one packet to a row, for packets that `packets` does not cover
    expansion     run-end encoded columns to plain ones
    encode        Arrow batches to messages
    packing       Arrow batches to packets, whole columns at a time
    packet_files  files of packets: `lanner export` and `lanner import`
"""
