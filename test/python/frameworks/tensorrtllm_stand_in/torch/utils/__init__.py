"""The module dlpack."""
