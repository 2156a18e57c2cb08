"""Groups of words: text, or counts that somebody has made already."""
