import asyncio, hashlib, os, ssl
import aiohttp

plain, tls = "http://" + os.environ["PLAIN"], "https://" + os.environ["TLS"]
trust = ssl.create_default_context(cafile=os.environ["CERT"])


async def use(proxy, auth):
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as s:
        args = {"proxy": "http://" + proxy, "proxy_auth": auth, "ssl": trust}

        async def get(url):
            async with s.get(url, **args) as r:
                assert r.status == 200, r.status
                return await r.read()

        for base in (plain, tls):
            bodies = await asyncio.gather(*(get(base + "/n%d" % i) for i in range(60)))
            assert bodies == [b"hello\n"] * 60
            assert len(await get(base + "/bytes/2000000")) == 2000000
            data = os.urandom(100000)
            want = "100000 %s <nil>\n" % hashlib.sha256(data).hexdigest()

            async def pieces():
                for i in range(0, len(data), 9999):
                    yield data[i:i + 9999]

            for body in (data, pieces()):
                async with s.post(base, data=body, **args) as r:
                    assert await r.text() == want
            async with s.post(base, data=data, expect100=True, **args) as r:
                assert await r.text() == want


async def main():
    await use(os.environ["OPEN"], None)
    await use(os.environ["PROXY"], aiohttp.BasicAuth("alice", "wonder"))
    async with aiohttp.ClientSession() as s:
        async with s.get(plain, proxy="http://" + os.environ["PROXY"]) as r:
            assert r.status == 407
        try:
            await s.get(tls, proxy="http://" + os.environ["PROXY"])
            raise SystemExit("a tunnel without password")
        except aiohttp.ClientHttpProxyError as e:
            assert e.status == 407


asyncio.run(main())
