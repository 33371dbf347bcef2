"""The verb ``clean``: removes exactly the files that this tool wrote; everything else stays and is named."""
