"""What a run sends to receivers that its author names: it never delays or fails a batch."""
