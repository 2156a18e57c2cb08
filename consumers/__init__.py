"""The application: everything of streamnb that has an outside.

Sources, sinks, checkpoints, metrics, commands. It stands on the library `streamnb`, which never
imports it.
"""
