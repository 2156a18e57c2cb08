"""The sections of `config.yaml`, one file a theme, and how the file is read.

`consumers.config` puts them together; everybody else imports the section classes from there.
"""
