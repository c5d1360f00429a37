"""A seeded model of the world around one pipeline, which plays random histories with faults on the real operator."""
