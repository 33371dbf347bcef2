"""What a measured run would do with more ranks on a described system: a queueing simulation (:mod:`.simulate`)."""
