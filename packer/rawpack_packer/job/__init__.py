"""Jobs: from a source to a store, and what makes a store of others."""
