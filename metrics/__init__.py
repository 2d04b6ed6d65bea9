"""Callboard's metrics package."""
