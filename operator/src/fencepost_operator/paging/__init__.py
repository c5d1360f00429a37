"""Pages: what somebody is told, whom, and how it is sent."""
