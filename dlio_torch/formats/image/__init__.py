"""JPEG and PNG, one image a file."""
