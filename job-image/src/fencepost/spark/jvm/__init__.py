"""The driver's JVM: its start, its log and its metrics."""
