"""What holds for all tests."""

from hypothesis import settings

# No test asserts on time: an example may take as long as a busy machine makes it.
settings.register_profile("dlio_torch", deadline=None)
settings.load_profile("dlio_torch")
