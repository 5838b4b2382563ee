// Passes bytes between two sockets without reading them, which is the least that a proxy on Node's sockets can do.
// `unread-bytes-proxy.ts <port> <upstream>`
import { connect, createServer, type Socket } from 'node:net';
import { readBuffer, readIntoBuffer } from '../../shared/process/read-buffer.ts';

const [port = '0', upstream = ''] = process.argv.slice(2);
const to = Number(new URL(upstream).port);

const server = createServer({ noDelay: true, pauseOnConnect: true }, (client) => {
  const api = connect({ port: to, host: '127.0.0.1', noDelay: true }, () => {
    join(client, api);
    join(api, client);
  });
});
server.listen(Number(port), '127.0.0.1', () => console.log(JSON.stringify({ ready: true })));

function join(from: Socket, to: Socket): void {
  from.on('error', () => to.destroy()).on('close', () => to.destroy());
  readIntoBuffer(from, (length) => {
    to.write(readBuffer.latin1Slice(0, length), 'latin1');
    return true;
  });
  from.resume();
}
