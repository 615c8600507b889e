"""What an operator touches."""
