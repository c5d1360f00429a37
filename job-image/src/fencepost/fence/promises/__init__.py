"""What the fence needs of a store, as checks that a test suite and `fencepost certify` run against a real one."""

from fencepost.fence.promises.promise import BrokenPromise, Promise

__all__ = ["BrokenPromise", "Promise"]
