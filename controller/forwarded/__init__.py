"""Requests that brokers forward: each is carried out once, though it may arrive twice."""
