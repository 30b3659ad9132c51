"""Benchmarks of Lanner and of comparable brokers, on one machine in one run.

`python -m bench` runs all of them, `python -m bench NAME ...` some; `--help` lists them. `python -m
bench --against REV` compares the working tree with another commit of this repository. `python -m
bench.cpu` and `python -m bench.store` measure details; `python -m bench.pages` compares ways to
read many stored messages.
"""
