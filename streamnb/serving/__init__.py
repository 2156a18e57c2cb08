"""Answers while the model learns: sealed snapshots, their publisher, and the predictor's thread."""
