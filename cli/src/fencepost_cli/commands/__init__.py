"""The commands, and what they share: their options, how they ask and how they print."""
