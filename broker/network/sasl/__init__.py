"""SASL on the broker's side of a connection: the exchange, its bounds, log lines and metrics."""
