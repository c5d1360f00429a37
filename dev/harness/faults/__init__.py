"""Faults: at the cluster, its nodes and its clocks, and a schedule that draws them."""
