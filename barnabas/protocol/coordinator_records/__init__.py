"""Keys and values of the internal topics (a module for each kind of group), and how they are framed (`record`).

Nothing is gathered here: a broker that knows classic groups only shall not load the records of all others.
"""
