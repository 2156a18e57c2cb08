"""Raw bytes in, columns of messages out."""
