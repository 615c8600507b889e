"""The store on Postgres: psycopg, plain statements, and functions in the database for what happens often."""
