"""What users read of a decision: conditions, Events, incidents and their pages."""
