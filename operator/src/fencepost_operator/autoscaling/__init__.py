"""How many workers a pipeline gets where `spec.cluster.autoscale` leaves it to the operator."""
