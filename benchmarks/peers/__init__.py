"""One module for each contender that stores payloads; it imports its library, so only its worker loads it."""
