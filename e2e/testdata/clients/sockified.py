"""A program that knows no proxy, run by dante's socksify."""
import os
import socket

tcp, udp = int(os.environ["TCP"]), int(os.environ["UDP"])
with socket.create_connection(("127.0.0.1", tcp), 20) as s:
    s.sendall(b"over and back")
    assert s.recv(100) == b"over and back"
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.settimeout(20)
    for i in range(20):
        s.sendto(b"datagram %d" % i, ("127.0.0.1", udp))
        data, source = s.recvfrom(2048)
        assert data == b"datagram %d" % i, data
        assert source == ("127.0.0.1", udp), source
