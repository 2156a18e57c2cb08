"""Compiled loops over bytes that come from outside: record batches, checksums, JSON.

Arrays in, arrays out, as in `streamnb.kernels`, whose compiler settings they share. Each kernel has
a slow, plain twin in the tests. Nothing that stands in the bytes is trusted: what does not add up
is a status that is returned, never a read beyond the buffer.
"""
