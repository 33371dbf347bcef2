"""A format of another distribution: records of equal size in a frame with a checksum."""
