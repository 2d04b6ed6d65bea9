"""Callboard's runtime package."""
