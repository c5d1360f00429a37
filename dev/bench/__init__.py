"""Figures, and no assertion: each program measures one thing on the testbed, prints a table and writes JSON."""
