"""What a row, a batch or an idle pipeline costs: CPU time, memory, and rows per second."""
