"""Programs for developers of Signoff; the wheel leaves them out."""
