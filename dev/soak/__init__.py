"""Hours of steady load, and what every resource does over them."""
