"""A fuzzer: random inputs, each of which gives the right result or one `InputError`.

`python -m tests.fuzz --help` says how to run it for long; `test_fuzz.py` runs a few examples of it in the suite.
"""
