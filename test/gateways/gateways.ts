import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { type RequestOptions, request } from 'node:http';
import { join } from 'node:path';
import { describe } from 'vitest';
import { spawnBound } from '../../deploy/dev/redis-server.ts';
import { freePort } from '../harness/ports.ts';
import { lacking, type Program } from '../harness/programs.ts';
import { eventually } from '../harness/waiting.ts';
import { Wire } from '../harness/wire.ts';

const SHIPPED = join(import.meta.dirname, '..', '..', 'deploy', 'gateways');

/** The gateways, each with its program, and the name under which `lacking` knows that. */
const KNOWN = {
  nginx: ['nginx', 'nginx'],
  haproxy: ['haproxy', 'haproxy'],
  caddy: ['caddy', 'caddy'],
  'caddy-2.8': [fetched('.caddy-2.8/bin/caddy'), 'Caddy 2.8'],
  'caddy-2.11': [fetched('.caddy-2.11/bin/caddy'), 'Caddy 2.11'],
  traefik: [fetched('.traefik/bin/traefik'), 'Traefik'],
  envoy: ['envoy', 'envoy'],
  'envoy-grpc': ['envoy', 'envoy'],
} as const satisfies Record<string, readonly [command: string, program: Program]>;
export type GatewayName = keyof typeof KNOWN;
/** A gateway without its version. */
export type GatewayKind = Exclude<GatewayName, `caddy-${string}`>;

/** Returns the path of a program that `.ci/run` fetches. */
function fetched(path: string): string {
  return join(import.meta.dirname, '..', '..', 'node_modules', path);
}

const kindOf = (name: GatewayName): GatewayKind =>
  name === 'caddy-2.8' || name === 'caddy-2.11' ? 'caddy' : name;

/** The nginx of compose.yaml, which asks about a key of any API. */
export const COMPOSE = 'compose';

/** Debian keeps servers out of a user's PATH. */
const PATH = `${process.env['PATH']}:/usr/sbin:${fetched('.envoy/envoy/_bin')}`;

/** Envoy with filters that go by the key. */
export const BY_KEY = 'envoy-by-key';

/** The gateways that are on this machine, each run with the files of deploy/gateways as they are. */
export const gatewayNames = (Object.keys(KNOWN) as GatewayName[]).filter(
  (name) => spawnSync('sh', ['-c', `command -v ${KNOWN[name][0]}`], { env: { PATH } }).status === 0,
);

/** Tests of each gateway; those of one that is not here are skipped, and say so. */
export function describeGateways(tests: (name: GatewayName, kind: GatewayKind) => void): void {
  for (const [name, [, program]] of Object.entries(KNOWN) as [GatewayName, [string, Program]][]) {
    const skipped = !gatewayNames.includes(name);
    describe.skipIf(skipped)(`${name}${lacking(skipped ? [program] : [])}`, () => tests(name, kindOf(name)));
  }
}

/** Addresses that a gateway needs, as `host:port`, and the API that it fronts. */
export interface Around {
  readonly VERIFIER: string;
  /** Address of the verifier's gRPC. */
  readonly VERIFIER_GRPC: string;
  readonly UPSTREAM: string;
  readonly API_ID: string;
  /** The verifier's setting. Lines for a source that is not in it are deleted, as the README says. */
  readonly CREDENTIAL_SOURCES: string;
  /** `true` = keys are optional, with the change that the README names for each gateway. */
  readonly OPTIONAL: 'true' | '';
}

/** Changes that make keys optional. */
const MADE_OPTIONAL = [
  [/default (auth-request;)/, 'default optional/$1'],
  [/(\{API_ID\})(" unless)/, '$1/optional$2'],
  [/vars require ""/, 'vars require optional/'],
  [/(\{API_ID\})(\/ext-authz)/, '$1/optional$2'],
  [/(api\/shop)(\/forward-auth)/, '$1/optional$2'],
  [/# (typed_per_filter_config: .*) # for optional keys/, '$1'],
] as const;

export interface Ask {
  readonly method?: string;
  readonly path?: string;
  /** Names and values by turns, sent as they stand. */
  readonly headers?: readonly string[];
  readonly body?: string;
  /** Address of the client, of this machine. */
  readonly localAddress?: string;
}

export interface Got {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: string;
}

/** A running gateway, listening on a unix socket, or at a port. It ends with this process. */
export class Gateway {
  /** What it wrote so far. */
  output = '';
  readonly #at: RequestOptions;
  readonly #stop: () => Promise<void>;

  private constructor(at: RequestOptions, stop: () => Promise<void>) {
    this.#at = at;
    this.#stop = stop;
  }

  /**
   * @param directory for its files; a short path, for the sockets in it
   * @param port on 127.0.0.1, where clients should have addresses; undefined = a unix socket, if the gateway has them
   */
  static async start(
    name: GatewayName | typeof COMPOSE | typeof BY_KEY,
    directory: string,
    around: Around,
    port?: number,
  ): Promise<Gateway> {
    const home = join(directory, name);
    mkdirSync(home, { recursive: true });
    const socket = join(home, 'gw');
    const place = port ?? (name === 'traefik' ? await freePort() : socket);
    const { command, env } = await launches[name](home, place, around);
    // With what it writes to stderr: shown where it does not start.
    const process = spawnBound('sh', ['-c', 'exec "$@" 2>&1', 'sh', ...command], {
      PATH,
      HOME: home,
      ...env,
    });
    const exited = once(process, 'exit');
    const at = typeof place === 'string' ? { socketPath: place } : { host: '127.0.0.1', port: place };
    const gateway = new Gateway(at, async () => {
      process.kill('SIGTERM');
      await exited;
    });
    process.stdout?.on('data', (chunk: Buffer) => {
      gateway.output += chunk.toString();
    });
    const answers = async () => {
      if (process.exitCode !== null) return true;
      // Traefik listens before it has its routes.
      return (await gateway.ask()).status !== 404;
    };
    await eventually(answers, `${name} did not start`).catch((error) => {
      throw new Error(`${name} did not start:\n${gateway.output}`, { cause: error });
    });
    if (process.exitCode !== null) throw new Error(`${name} did not start:\n${gateway.output}`);
    return gateway;
  }

  /** One request on a connection of its own. */
  async ask({ method = 'GET', path = '/', headers = [], body = '', localAddress }: Ask = {}): Promise<Got> {
    const length = body === '' ? [] : ['Content-Length', String(body.length)];
    const sent = request({
      ...this.#at,
      ...(localAddress === undefined ? {} : { localAddress }),
      method,
      path,
      headers: ['Host', 'api.example', ...length, ...headers],
      agent: false,
    });
    sent.end(body, 'latin1');
    const [response] = await once(sent, 'response');
    let text = '';
    for await (const chunk of response.setEncoding('utf8')) text += chunk;
    return { status: response.statusCode, headers: response.headers, body: text };
  }

  /** Where it listens, if that is a port. */
  get address(): string {
    return `http://${this.#at.host}:${this.#at.port}`;
  }

  /** A bare connection, for requests that no client library would send. */
  connect(): Wire {
    const { socketPath, host, port } = this.#at;
    return new Wire(socketPath ?? `http://${host}:${port}`);
  }

  stop(): Promise<void> {
    return this.#stop();
  }
}

interface Launch {
  readonly command: readonly string[];
  readonly env: Readonly<Record<string, string>>;
}

const launches: Record<
  GatewayName | typeof COMPOSE | typeof BY_KEY,
  (home: string, place: string | number, around: Around) => Launch | Promise<Launch>
> = {
  nginx(home, place, around) {
    const site = substituted('nginx/keyfence.conf.template', { ...around, LISTEN: nginxPlace(place) });
    // As somebody does who wants larger uploads than nginx.
    const larger = site.replace('location / {', 'location / { client_max_body_size 8m;');
    writeFileSync(join(home, 'site.conf'), larger);
    const paths = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
      (kind) => `${kind}_temp_path ${home};`,
    );
    return launchNginx(home, [
      `pid ${home}/pid; error_log stderr crit; worker_processes 2; events {}`,
      `http { access_log off; ${paths.join(' ')} include ${home}/site.conf; }`,
    ]);
  },
  compose(home, place, { VERIFIER, UPSTREAM, API_ID }) {
    // All of it as it is, but for what the services are called and where it may write.
    const file = readFileSync(join(SHIPPED, '..', 'compose', 'nginx.conf'), 'utf8')
      .replaceAll('/tmp/', `${home}/`)
      .replaceAll(/verifier-\d:3001/g, VERIFIER)
      .replace('api:8000', UPSTREAM)
      .replace('/authz/api/sample/', `/authz/api/${API_ID}/`)
      .replace('listen 8080', `listen ${nginxPlace(place)}`)
      .replace('http {', 'http {\n  access_log off;');
    return launchNginx(home, [file]);
  },
  haproxy(home, place, around) {
    const KEYFENCE_LUA = join(home, 'keyfence.lua');
    writeFileSync(KEYFENCE_LUA, shipped('haproxy/keyfence.lua', around));
    const file = join(home, 'haproxy.cfg');
    writeFileSync(file, shipped('haproxy/haproxy.cfg', around));
    const LISTEN = typeof place === 'string' ? place : `127.0.0.1:${place}`;
    const env = { ...around, LISTEN, AUTHZ_SOCKET: join(home, 'kf'), KEYFENCE_LUA };
    return { command: ['haproxy', '-db', '-f', file], env };
  },
  caddy: (...at) => launchCaddy('caddy', ...at),
  'caddy-2.8': (...at) => launchCaddy('caddy-2.8', ...at),
  'caddy-2.11': (...at) => launchCaddy('caddy-2.11', ...at),
  async traefik(home, place, around) {
    const [questions, files] = [`127.0.0.1:${await freePort()}`, ['traefik.yaml', 'dynamic.yaml']];
    // Without variables: somebody who uses it edits it.
    for (const file of files) {
      const text = shipped(`traefik/${file}`, around)
        .replace(': :8080', `: 127.0.0.1:${place}`)
        .replaceAll('127.0.0.1:8079', questions)
        .replace('127.0.0.1:8081', around.UPSTREAM)
        .replace('127.0.0.1:3001', around.VERIFIER)
        .replace('filename: ', `filename: ${home}/`);
      writeFileSync(join(home, file), `${text}${file === 'traefik.yaml' ? OFFLINE : ''}`);
    }
    return { command: [KNOWN.traefik[0], `--configFile=${join(home, 'traefik.yaml')}`], env: {} };
  },
  envoy: (home, place, around) => launchEnvoy('envoy/envoy.yaml.template', home, place, around),
  'envoy-grpc': (home, place, around) =>
    launchEnvoy('envoy/envoy-grpc.yaml.template', home, place, {
      ...around,
      VERIFIER: around.VERIFIER_GRPC,
    }),
  [BY_KEY]: (home, place, around) =>
    launchEnvoy('envoy/envoy-by-key.yaml.template', home, place, {
      ...around,
      VERIFIER: around.VERIFIER_GRPC,
    }),
};

/** Traefik asks its makers for newer versions unless told not to. */
const OFFLINE = 'global: { checkNewVersion: false }\n';

function launchCaddy(
  name: 'caddy' | 'caddy-2.8' | 'caddy-2.11',
  home: string,
  place: string | number,
  around: Around,
): Launch {
  const file = join(home, 'Caddyfile');
  writeFileSync(file, shipped('caddy/Caddyfile', around));
  const at =
    typeof place === 'string' ? { LISTEN: `unix/${place}` } : { LISTEN: '127.0.0.1', PORT: String(place) };
  const env = { ...around, ...at, XDG_CONFIG_HOME: home, XDG_DATA_HOME: home };
  return { command: [KNOWN[name][0], 'run', '--config', file, '--adapter', 'caddyfile'], env };
}

const nginxPlace = (place: string | number) =>
  typeof place === 'string' ? `unix:${place}` : `127.0.0.1:${place}`;

function launchNginx(home: string, configuration: readonly string[]): Launch {
  // Root drops to another user, who could not reach the files of this test.
  const user = process.getuid?.() === 0 ? 'user root;' : '';
  writeFileSync(join(home, 'nginx.conf'), [user, ...configuration].join('\n'));
  const command = ['nginx', '-p', home, '-c', join(home, 'nginx.conf'), '-e', 'stderr', '-g', 'daemon off;'];
  return { command, env: {} };
}

function launchEnvoy(template: string, home: string, place: string | number, around: Around): Launch {
  const { VERIFIER, UPSTREAM } = around;
  const at = (hostAndPort: string) => {
    const [host, port] = hostAndPort.split(':');
    return `{ socket_address: { address: ${host}, port_value: ${port} } }`;
  };
  const LISTEN = typeof place === 'string' ? `{ pipe: { path: ${place} } }` : at(`127.0.0.1:${place}`);
  const file = join(home, 'envoy.yaml');
  const values = { ...around, LISTEN, VERIFIER: at(VERIFIER), UPSTREAM: at(UPSTREAM) };
  writeFileSync(file, substituted(template, values));
  // Hot restart is in memory that all Envoys of a machine share.
  const command = ['envoy', '-c', file, '--disable-hot-restart', '--concurrency', '2', '-l', 'error'];
  command.push('--file-flush-interval-msec', '100');
  return { command, env: {} };
}

/** A file of deploy/gateways after what `envsubst` does. */
function substituted(file: string, values: Around & Readonly<Record<string, string>>): string {
  return shipped(file, values).replace(/\$\{(\w+)\}/g, (whole, name: keyof Around) => values[name] ?? whole);
}

/** A file of deploy/gateways for one setting of the verifier, changed as their README says. */
export function shipped(
  file: string,
  { CREDENTIAL_SOURCES, OPTIONAL }: Pick<Around, 'CREDENTIAL_SOURCES' | 'OPTIONAL'>,
): string {
  const sources = CREDENTIAL_SOURCES.split(',');
  const header = sources.find((source) => source.startsWith('header:'))?.slice('header:'.length);
  let text = readFileSync(join(SHIPPED, file), 'utf8');
  if (OPTIONAL) for (const [from, to] of MADE_OPTIONAL) text = text.replace(from, to);
  const named = header ? text.replace(/x-api-key/gi, header).replaceAll('x_api_key', header) : text;
  const has = (source?: string) => sources.some((each) => each === source || each === `header:${source}`);
  return named.replace(
    /^.*?\b(not )?for the sources? (\S+)(?: and (\S+))?\n/gm,
    (line, not: string | undefined, one: string, other: string | undefined) => {
      if (not) return has(one) ? '' : line;
      return has(one) || has(other) ? line.replace(/^(\s*)(?:#|--) /, '$1') : '';
    },
  );
}
