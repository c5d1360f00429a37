"""Where rows go: the driver checks frames against tables, Python workers write them."""
