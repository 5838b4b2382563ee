// The least that a proxy on Node's sockets and undici does: it takes each read for one request without a body, splits it
// into lines, and returns the response of undici. `undici-dispatch-proxy.ts <port> <upstream>`
import { createServer } from 'node:net';
import { buildConnector, type Dispatcher, Pool } from 'undici';
import { readBuffer, readCopies, readIntoBuffer } from '../../shared/process/read-buffer.ts';

const [port = '0', upstream = ''] = process.argv.slice(2);
const connect = buildConnector({ allowH2: false });
const pool = new Pool(upstream, {
  connections: 1000,
  allowH2: false,
  connect: (options, callback) =>
    connect(options, (...result) => {
      if (result[1]) readCopies(result[1]);
      callback(...result);
    }),
});

const server = createServer({ noDelay: true }, (client) => {
  client.on('error', () => client.destroy());
  readIntoBuffer(client, (length) => {
    const [line = '', ...lines] = readBuffer.latin1Slice(0, length).split('\r\n');
    const [method = '', path = ''] = line.split(' ');
    const headers = lines.flatMap((each) => {
      const colon = each.indexOf(':');
      return colon < 0 || /^connection/i.test(each) ? [] : [each.slice(0, colon), each.slice(colon + 2)];
    });
    let [head, body] = ['', ''];
    const handler: Dispatcher.DispatchHandler = {
      onRequestStart: () => undefined,
      onResponseStart(controller, status) {
        head = `HTTP/1.1 ${status} OK\r\n`;
        const raw = controller.rawHeaders as Buffer[];
        for (let i = 0; i < raw.length; i += 2) {
          const name = raw[i]?.latin1Slice() ?? '';
          if (!/^connection/i.test(name)) head += `${name}: ${raw[i + 1]?.latin1Slice()}\r\n`;
        }
      },
      onResponseData(_controller, chunk) {
        body += chunk.latin1Slice();
      },
      onResponseEnd: () => void client.write(`${head}\r\n${body}`, 'latin1'),
      onResponseError: () => void client.destroy(),
    };
    pool.dispatch({ method: method as Dispatcher.HttpMethod, path, headers }, handler);
    return true;
  });
  client.resume();
});
server.listen(Number(port), '127.0.0.1', () => console.log(JSON.stringify({ ready: true })));
