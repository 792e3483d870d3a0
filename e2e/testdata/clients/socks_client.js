// The package "socks": CONNECT, BIND and UDP ASSOCIATE.
const assert = require('assert');
const dgram = require('dgram');
const net = require('net');
const { once } = require('events');
const { SocksClient } = require('socks');

const endpoint = (s) => ({ host: s.split(':')[0], port: Number(s.split(':')[1]) });
const open = endpoint(process.env.SOCKS);
const login = { ...endpoint(process.env.LOGIN), userId: 'alice', password: 'wonder' };
const [tcp, udp] = [Number(process.env.TCP), Number(process.env.UDP)];

async function connect(proxy, host) {
  const { socket } = await SocksClient.createConnection({ proxy, command: 'connect', destination: { host, port: tcp } });
  socket.write('over and back');
  socket.resume();
  const [data] = await once(socket, 'data');
  assert.equal(data.toString(), 'over and back');
  socket.destroy();
}

async function bind(proxy) {
  const client = new SocksClient({ proxy, command: 'bind', destination: { host: '127.0.0.1', port: 0 } });
  client.connect();
  const [bound] = await once(client, 'bound');
  const peer = net.connect(bound.remoteHost.port, bound.remoteHost.host);
  const [established] = await once(client, 'established');
  established.socket.resume();
  peer.write('to the client');
  assert.equal((await once(established.socket, 'data'))[0].toString(), 'to the client');
  established.socket.write('to the peer');
  assert.equal((await once(peer, 'data'))[0].toString(), 'to the peer');
  peer.destroy();
  established.socket.destroy();
}

async function associate(proxy) {
  const client = new SocksClient({ proxy, command: 'associate', destination: { host: '0.0.0.0', port: 0 } });
  client.connect();
  const [{ socket, remoteHost }] = await once(client, 'established');
  const local = dgram.createSocket('udp4');
  for (const host of ['127.0.0.1', 'srv.example']) {
    const frame = SocksClient.createUDPFrame({ remoteHost: { host, port: udp }, data: Buffer.from('datagram') });
    local.send(frame, remoteHost.port, remoteHost.host);
    const [message] = await once(local, 'message');
    const answer = SocksClient.parseUDPFrame(message);
    assert.deepEqual(answer.remoteHost, { host: '127.0.0.1', port: udp });
    assert.equal(answer.data.toString(), 'datagram');
  }
  local.close();
  socket.destroy();
}

(async () => {
  await connect({ ...open, type: 4 }, '127.0.0.1');
  await connect({ ...open, type: 4 }, 'srv.example');
  for (const proxy of [{ ...open, type: 5 }, { ...login, type: 5 }]) {
    await connect(proxy, '127.0.0.1');
    await connect(proxy, 'srv.example');
    await bind(proxy);
    await associate(proxy);
  }
  await bind({ ...open, type: 4 });
  await assert.rejects(connect({ ...login, password: 'wrong', type: 5 }, '127.0.0.1'));
})().then(() => process.exit(0), (e) => { console.error(e); process.exit(1); });
setTimeout(() => { console.error('no end'); process.exit(1); }, 60000).unref();
