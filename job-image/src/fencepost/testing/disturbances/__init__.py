"""The clock and the hash seed of an author's code, which its rows may not depend on."""
