"""The codec server: decrypts what Temporal keeps, for whoever may read the record."""
