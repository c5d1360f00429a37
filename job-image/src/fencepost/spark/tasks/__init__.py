"""The tasks of a batch: how it is divided into them, what they receive, what they report, and how they end."""
