import { createServer, type Server, type Socket } from 'node:net';

/**
 * A server that speaks RESP and answers as Redis 6.2 does: it greets, says its version, takes one pattern in CONFIG GET and
 * no `#!lua` in scripts, and knows nothing else. Checked against a real Redis 6.2.14.
 */
export class OldRedis {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly port: number;

  private constructor(server: Server, port: number) {
    this.#server = server;
    this.port = port;
    server.on('connection', (socket) => {
      this.#sockets.add(socket);
      socket.on('error', () => undefined); // the other side hangs up
      socket.on('data', (chunk) => {
        for (const command of commandsIn(chunk.toString())) socket.write(replyTo(command));
      });
    });
  }

  static async start(): Promise<OldRedis> {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return new OldRedis(server, (server.address() as { port: number }).port);
  }

  get url(): string {
    return `redis://127.0.0.1:${this.port}`;
  }

  async stop(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

/** Commands come whole: they are short. */
function commandsIn(text: string): string[][] {
  return text
    .split(/^\*\d+\r\n/m)
    .slice(1)
    .map((command) => command.split('\r\n').filter((_, i) => i % 2 === 1));
}

function replyTo([name = '', ...args]: readonly string[]): string {
  const bulk = (text: string) => `$${text.length}\r\n${text}\r\n`;
  switch (name.toLowerCase()) {
    case 'hello':
      return `%3\r\n${bulk('server')}${bulk('redis')}${bulk('version')}${bulk('6.2.14')}${bulk('proto')}:3\r\n`;
    case 'info':
      return args.length > 1
        ? '-ERR syntax error\r\n'
        : bulk('# Server\r\nredis_version:6.2.14\r\nloading:0\r\n');
    case 'config':
      return args.length > 2
        ? "-ERR Unknown subcommand or wrong number of arguments for 'get'. Try CONFIG HELP.\r\n"
        : '*0\r\n';
    case 'eval':
      return "-ERR Error compiling script (new function): user_script:1: unexpected symbol near '#' \r\n";
    case 'evalsha':
      return '-NOSCRIPT No matching script. Please use EVAL.\r\n';
    case 'subscribe':
      return `>3\r\n${bulk('subscribe')}${bulk(args[0] ?? '')}:1\r\n`;
    default:
      return '$-1\r\n';
  }
}
