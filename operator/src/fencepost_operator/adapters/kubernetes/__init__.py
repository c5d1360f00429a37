"""Objects of the Kubernetes API: read, written and watched through one client."""
