"""The sink of HTTP requests: each row is a request with an idempotency key."""
