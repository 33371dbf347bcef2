"""What the tool itself costs: starting, holding an index, going through a step in which nothing is done."""
