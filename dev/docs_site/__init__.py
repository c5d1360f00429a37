"""The documentation site: its pages from docs/ and the root, in the Markdown that MkDocs reads."""
