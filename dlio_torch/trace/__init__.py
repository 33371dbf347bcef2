"""What happened when: named intervals of every process and thread, and the traces made of them."""
