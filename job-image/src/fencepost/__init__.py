"""Fencepost: what runs in the driver, and the contract that the operator shares."""
