"""Programs that the testbed builds or unpacks: from Go modules and from Debian packages."""
