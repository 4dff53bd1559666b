"""The network of a simulated machine: links, TCP streams, sockets, epoll."""
