"""Parts of previews: parsing, masking, hashes and lines."""
