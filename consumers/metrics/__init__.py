"""Every metric of the daemon: name, unit, help, and the one place where it is counted.

`all` ties them together, and counts what the stream brings; the rooms behind the page have a file
each, and so has the process itself.
"""

from consumers.metrics.all import OTHER, OUTCOMES, Metrics

__all__ = ["OTHER", "OUTCOMES", "Metrics"]
