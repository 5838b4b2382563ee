// A server that answers every read with constant bytes, so that only the load generator, the kernel and Node's sockets are
// measured. `constant-bytes.ts <port>`
import { createServer } from 'node:net';
import { readIntoBuffer } from '../../shared/process/read-buffer.ts';

const body = '{"valid":true,"code":"VALID","keyId":"key_0","apiId":"bench","enabled":true,"meta":{}}';
const answer = `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`;
const server = createServer({ noDelay: true }, (socket) => {
  socket.on('error', () => socket.destroy());
  readIntoBuffer(socket, () => {
    socket.write(answer, 'latin1');
    return true;
  });
  socket.resume();
});
server.listen(Number(process.argv[2]), '127.0.0.1', () => console.log(JSON.stringify({ ready: true })));
