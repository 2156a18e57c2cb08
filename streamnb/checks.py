"""The former name of `streamnb.testing`: programs written for version 0.1 go on working."""

from streamnb import testing
from streamnb.testing import *  # noqa: F403 -- the same public names

__all__ = testing.__all__
