const assert = require('assert');
const crypto = require('crypto');
const fs = require('fs');
const http = require('http');
const { ProxyAgent, request } = require('undici');

const { PROXY, OPEN, PLAIN, TLS, CERT } = process.env;
const basic = 'Basic ' + Buffer.from('alice:wonder').toString('base64');

// viaTunnels sends everything through CONNECT.
async function viaTunnels(uri, token) {
  const ca = fs.readFileSync(CERT);
  const dispatcher = new ProxyAgent({ uri, token, requestTls: { ca } });
  for (const base of ['http://' + PLAIN, 'https://' + TLS]) {
    const answers = await Promise.all(Array.from({ length: 30 }, async (_, i) => {
      const r = await request(base + '/n' + i, { dispatcher });
      return r.body.text();
    }));
    assert(answers.every(a => a === 'hello\n'), answers.join());
    const body = crypto.randomBytes(200000);
    const sum = crypto.createHash('sha256').update(body).digest('hex');
    const r = await request(base, { dispatcher, method: 'POST', body });
    assert.strictEqual(await r.body.text(), `200000 ${sum} <nil>\n`);
  }
  await dispatcher.close();
}

const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });

// absolute sends a request with an absolute URI over one connection.
function absolute(method, headers, body) {
  const [host, port] = PROXY.split(':');
  return new Promise((resolve, reject) => {
    const q = http.request({ agent, host, port, method, path: `http://${PLAIN}/`, headers }, r => {
      let text = '';
      r.on('data', d => { text += d; });
      r.on('end', () => resolve({ status: r.statusCode, text, reused: q.reusedSocket }));
    });
    q.on('error', reject);
    if (headers.Expect) q.on('continue', () => q.end(body));
    else q.end(body);
  });
}

async function main() {
  await viaTunnels('http://' + OPEN);
  await viaTunnels('http://' + PROXY, basic);
  const body = crypto.randomBytes(50000);
  const sum = crypto.createHash('sha256').update(body).digest('hex');
  let n = 0;
  for (let i = 0; i < 5; i++) {
    // Refused with a body, then answered, on the same connection.
    const refused = await absolute('POST', { 'Content-Length': body.length }, body);
    assert.strictEqual(refused.status, 407);
    const sized = await absolute('POST', { 'Proxy-Authorization': basic, 'Content-Length': body.length }, body);
    assert.strictEqual(sized.text, `50000 ${sum} <nil>\n`);
    const chunked = await absolute('POST', { 'Proxy-Authorization': basic, 'Transfer-Encoding': 'chunked' }, body);
    assert.strictEqual(chunked.text, `50000 ${sum} <nil>\n`);
    const waited = await absolute('PUT', { 'Proxy-Authorization': basic, 'Content-Length': body.length, Expect: '100-continue' }, body);
    assert.strictEqual(waited.text, `50000 ${sum} <nil>\n`);
    for (const r of [refused, sized, chunked, waited]) n += r.reused ? 1 : 0;
  }
  assert.strictEqual(n, 19, `${n} of 20 requests on a connection that was open`);
  agent.destroy();
}

main().catch(e => { console.error(e); process.exit(1); });
