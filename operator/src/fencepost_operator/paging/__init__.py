"""Pages: their receivers, their messages, and how these are sent."""
