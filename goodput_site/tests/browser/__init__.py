"""Tests through a real browser against a real server."""
