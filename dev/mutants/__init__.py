"""Whether the tests of the core find a mistake in it: random mutants, each run against the tests that reach it."""
