"""How alike two recordings are, component by component, against the noise between equal ones."""
