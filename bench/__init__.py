"""Benchmarks: Lanner and the brokers a user would otherwise pick, on one machine in one run.

`python -m bench` runs all of them, `python -m bench NAME ...` some; `--help` names them. `python -m
bench --against REV` compares the working tree with another commit of this repository. `python -m
bench.cpu` and `python -m bench.store` look closer; `python -m bench.pages` compares ways to read
many stored messages.
"""
