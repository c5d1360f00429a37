"""A world in memory for the operator: every port, a driver that commits, and time that can be set."""
