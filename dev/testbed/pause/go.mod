module fencepost.test/testbed/pause

go 1.24.0
