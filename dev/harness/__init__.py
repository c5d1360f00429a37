"""What tests, demo and benchmarks act on the testbed with: kubectl, nodes, load, faults."""
