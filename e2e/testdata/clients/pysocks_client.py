"""PySocks: SOCKS 4, 4a and 5 over TCP, and UDP ASSOCIATE."""
import os
import socket
import socks

host, port = os.environ["SOCKS"].rsplit(":", 1)
login = os.environ["LOGIN"].rsplit(":", 1)
tcp, udp = int(os.environ["TCP"]), int(os.environ["UDP"])


def opened(kind, rdns, family=socket.SOCK_STREAM, proxy=(host, port), user=None, password=None):
    s = socks.socksocket(socket.AF_INET, family)
    s.set_proxy(kind, proxy[0], int(proxy[1]), rdns, user, password)
    s.settimeout(20)
    return s


for kind, rdns, target in [
    (socks.SOCKS4, False, "127.0.0.1"),
    (socks.SOCKS4, True, "srv.example"),
    (socks.SOCKS5, False, "127.0.0.1"),
    (socks.SOCKS5, True, "srv.example"),
]:
    with opened(kind, rdns) as s:
        s.connect((target, tcp))
        s.sendall(b"over and back")
        assert s.recv(100) == b"over and back", (kind, target)

with opened(socks.SOCKS5, True, proxy=login, user="alice", password="wonder") as s:
    s.connect(("srv.example", tcp))
    s.sendall(b"over and back")
    assert s.recv(100) == b"over and back"
try:
    with opened(socks.SOCKS5, True, proxy=login, user="alice", password="wrong") as s:
        s.connect(("srv.example", tcp))
    raise SystemExit("a wrong password is taken")
except socks.ProxyError:
    pass

for proxy, user, password in [((host, port), None, None), (login, "alice", "wonder")]:
    with opened(socks.SOCKS5, True, socket.SOCK_DGRAM, proxy, user, password) as s:
        for target in ["127.0.0.1", "srv.example"]:
            for i in range(20):
                s.sendto(b"datagram %d" % i, (target, udp))
                data, source = s.recvfrom(2048)
                assert data == b"datagram %d" % i, data
                assert source == ("127.0.0.1", udp), source
