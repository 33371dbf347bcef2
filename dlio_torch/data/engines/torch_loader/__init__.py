"""``loader.engine=dataloader`` and ``stateful``: torch's DataLoader, and torchdata's."""
