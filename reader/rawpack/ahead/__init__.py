"""What the steps of an epoch wait for before they are made: files of remote stores, and the disk."""
