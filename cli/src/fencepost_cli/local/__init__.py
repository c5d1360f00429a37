"""A manifest as a run on this machine: what is read, which code runs, and the tables that its rows go to."""
