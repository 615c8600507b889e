"""The job types, one file or folder a subject."""
