"""Callboard's plugins package."""
