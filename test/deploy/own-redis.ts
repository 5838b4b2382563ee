import { type ChildProcess, execFileSync } from 'node:child_process';
import { once } from 'node:events';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { vi } from 'vitest';
import { spawnBound } from '../../deploy/dev/redis-server.ts';
import { freePort } from '../harness/ports.ts';
import { HOLDS_MS_MAX } from '../harness/waiting.ts';

const USERS = [
  'operator',
  'control-plane',
  'verifier',
  'verifier-billing',
  'replica',
  'sentinel',
  'sentinel-client',
];

/** deploy/redis as a container would have it, with every password there is: that of a user is its name. */
export class OwnFiles {
  readonly folder = mkdtempSync(join(tmpdir(), 'keyfence-redis-'));

  /** @param change what users.acl is made to say */
  constructor(change = (acl: string) => acl) {
    const users = join(this.folder, 'files', 'users.acl');
    cpSync(join(import.meta.dirname, '..', '..', 'deploy', 'redis'), join(this.folder, 'files'), {
      recursive: true,
    });
    writeFileSync(users, change(readFileSync(users, 'utf8')));
    mkdirSync(join(this.folder, 'secrets', 'tls'), { recursive: true });
    for (const user of USERS) writeFileSync(join(this.folder, 'secrets', `${user}-password`), `${user}\n`);
  }

  /** Tells whether there is a certificate, so that servers speak TLS. */
  get isCertified(): boolean {
    return existsSync(join(this.folder, 'secrets', 'tls', 'tls.crt'));
  }

  /** Options of a client that does not look whose certificate it is. */
  get tls(): object {
    return this.isCertified ? { tls: { rejectUnauthorized: false } } : {};
  }

  get ca(): string {
    return join(this.folder, 'secrets', 'tls', 'ca.crt');
  }

  /** Makes an authority and a certificate of it for these addresses: from the next start on it is TLS. */
  certify(...addresses: string[]): void {
    const make = (name: string, ...more: string[]) =>
      execFileSync(
        'openssl',
        `req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=${name}`
          .split(' ')
          .concat('-keyout', `${name}.key`, '-out', `${name}.crt`, ...more),
        { cwd: join(this.folder, 'secrets', 'tls'), stdio: 'pipe' },
      );
    make('ca');
    const names = `subjectAltName=${addresses.map((address) => `IP:${address}`).join(',')}`;
    make(
      'tls',
      '-CA',
      'ca.crt',
      '-CAkey',
      'ca.key',
      '-addext',
      names,
      '-addext',
      'basicConstraints=CA:FALSE',
    );
  }

  /** Takes a certificate that was made elsewhere: file by file of the Secret. */
  use(fileOf: (name: string) => Buffer): void {
    for (const name of ['tls.crt', 'tls.key', 'ca.crt'])
      writeFileSync(join(this.folder, 'secrets', 'tls', name), fileOf(name));
  }

  remove(): void {
    rmSync(this.folder, { recursive: true });
  }
}

/** One process of deploy/redis/start.sh or start-sentinel.sh, which keeps its data when started again. */
export class OwnRedis {
  readonly host: string;
  readonly port: number;
  readonly #command: readonly string[];
  /** Environment of its scripts. */
  readonly env: NodeJS.ProcessEnv;
  readonly #clients: Redis[] = [];
  #server: ChildProcess | undefined;

  private constructor(files: OwnFiles, port: number, script: string, env: NodeJS.ProcessEnv, args: string[]) {
    this.host = env['BIND'] ?? '127.0.0.1';
    this.port = port;
    this.#command = [join(files.folder, 'files', script), ...args];
    const data = env['DATA'] ?? join(files.folder, `${script}-${this.host}-${port}`);
    mkdirSync(data, { recursive: true });
    this.env = {
      ...process.env,
      SECRETS: join(files.folder, 'secrets'),
      DATA: data,
      [script === 'start.sh' ? 'REDIS_PORT' : 'SENTINEL_PORT']: String(port),
      ...env,
    };
  }

  static async start(
    files: OwnFiles,
    options: { port?: number; script?: string; env?: NodeJS.ProcessEnv; args?: string[] } = {},
  ): Promise<OwnRedis> {
    const { port = await freePort(), script = 'start.sh', env = {}, args = [] } = options;
    const redis = new OwnRedis(files, port, script, env, args);
    await redis.restart();
    return redis;
  }

  /** Restarts the server over the same data. */
  async restart(): Promise<void> {
    await this.end();
    this.#server = spawnBound(...this.#withHosts(['sh', ...this.#command]), this.env);
    this.#server.stdout?.resume();
    const [script = ''] = this.#command;
    if (script.endsWith('sentinel.sh')) return;
    const probe = join(script, '..', 'ping.sh');
    const [tool, args] = this.#withHosts(['sh', probe]);
    const ping = () => execFileSync(tool, args, { env: this.env, stdio: 'pipe' });
    await vi.waitFor(ping, { timeout: HOLDS_MS_MAX, interval: 20 });
  }

  /** With HOSTS_FILE it sees the names in there. */
  #withHosts(command: string[]): [string, string[]] {
    const [tool = '', ...args] = command;
    if (!this.env['HOSTS_FILE']) return [tool, args];
    const inside = 'mount --bind "$HOSTS_FILE" /etc/hosts && exec "$0" "$@"';
    return ['unshare', ['-rm', 'sh', '-c', inside, ...command]];
  }

  /** A connection of one of its users. */
  as(username: string, options: object = {}): Redis {
    return this.connect({ username, password: username, ...options });
  }

  connect(options: object = {}): Redis {
    const client = new Redis({ host: this.host, port: this.port, enableReadyCheck: false, ...options });
    client.on('error', () => undefined); // the commands reject
    this.#clients.push(client);
    return client;
  }

  /** Ends the process; `stop` ends connections too. */
  async end(signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
    if (!this.#server || this.#server.exitCode !== null || this.#server.signalCode !== null) return;
    const exited = once(this.#server, 'exit');
    this.#server.kill(signal);
    await exited;
  }

  /** Empties its disk; to be called while it does not run. */
  loseData(): void {
    const data = this.env['DATA'] ?? '';
    for (const file of readdirSync(data)) rmSync(join(data, file), { recursive: true });
  }

  async stop(): Promise<void> {
    for (const client of this.#clients.splice(0)) client.disconnect();
    await this.end();
  }
}
