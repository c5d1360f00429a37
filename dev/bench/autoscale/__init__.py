"""The autoscaler against a planner with hindsight, on generated loads."""
