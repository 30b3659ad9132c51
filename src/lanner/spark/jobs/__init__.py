"""The jobs of the data pipeline: PySpark programs over the queues of queue managers, and over the tables they make.

One module per job, each with pure functions from DataFrames to DataFrames, `run` for `lanner pipeline run`, and `main` for
spark-submit. `config` reads pipeline.toml, `tables` knows where everything is, `session` starts Spark.
"""
