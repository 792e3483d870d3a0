import os, hashlib, requests

plain, tls, cert = os.environ["PLAIN"], os.environ["TLS"], os.environ["CERT"]


def session(proxy):
    s = requests.Session()
    s.trust_env = False
    s.proxies = {"http": "http://" + proxy, "https": "http://" + proxy}
    s.verify = cert
    return s


opened = session(os.environ["OPEN"])
authed = session("alice:wonder@" + os.environ["PROXY"])
for s in (opened, authed):
    for scheme, host in (("http", plain), ("https", tls)):
        base = scheme + "://" + host
        for i in range(20):
            r = s.get(base + "/x", timeout=20)
            assert (r.status_code, r.text) == (200, "hello\n"), (r.status_code, r.text)
        body = os.urandom(300000)
        want = "300000 %s <nil>\n" % hashlib.sha256(body).hexdigest()
        assert s.post(base, data=body, timeout=20).text == want
        if s is opened or scheme == "https":
            # requests sends chunked bodies without its proxy's password.
            r = s.put(base, data=iter([body[:1], body[1:200000], body[200000:]]), timeout=20)
            assert r.text == want, (r.status_code, r.text, want)
        assert len(s.get(base + "/bytes/3000000", timeout=20).content) == 3000000
        assert s.head(base + "/bytes/5", timeout=20).headers["Content-Length"] == "5"
        r = s.get(base + "/header", headers={"Connection": "X-Hop", "X-Hop": "1", "X-End": "2"}, timeout=20)
        if scheme == "http":
            assert "X-Hop" not in r.text and "X-End: 2" in r.text and "Proxy-" not in r.text, r.text

refused = session(os.environ["PROXY"])
r = refused.get("http://%s/" % plain, timeout=20)
assert r.status_code == 407 and r.headers["Proxy-Authenticate"].startswith("Basic "), r.headers
r = refused.post("http://%s/" % plain, data=b"x" * 1000, headers={"Accept": "application/json"}, timeout=20)
assert r.status_code == 407 and r.json()["status"] == 407, r.text
assert refused.get("http://%s/" % plain, timeout=20).status_code == 407
try:
    refused.get("https://%s/" % tls, timeout=20)
    raise SystemExit("a tunnel without password")
except requests.exceptions.ProxyError as e:
    assert "407" in str(e), e
