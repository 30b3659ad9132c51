"""The demo of the data pipeline, and the generator of its test data. Not part of the wheel.

__main__          `make demo`: two queue managers, their traffic, all pipeline jobs, the report
business          the traffic of the demo
generator         generated traffic as packets, with a record of what really happened
generated_queues  puts generated messages into the queues of a queue manager
against_truth     compares the report with what happened
"""
