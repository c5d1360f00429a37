"""A release: what it consists of, made and verified; `make release-dry-run` does it without publishing."""
