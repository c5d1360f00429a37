"""From an observation to a decision. Pure: the same observation always gives the same decision."""
