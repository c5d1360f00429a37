"""The whole product on the cluster: what its conftest makes is gone before the next folder's tests."""
