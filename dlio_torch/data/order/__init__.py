"""Who reads what, when: orders, samplers and plans."""
