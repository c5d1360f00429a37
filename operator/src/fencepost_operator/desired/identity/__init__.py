"""What makes two specs the same: hashes, the code that writes rows, and the revision that keeps a spec."""
