"""What should be there: pure builders of plain dicts, from the spec and what it refers to."""
