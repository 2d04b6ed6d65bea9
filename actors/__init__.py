"""Callboard's actors package."""
