import { spawn, spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pinned, startProcess } from './harness.ts';
import { freePort, peer, SERVER_CORE } from './load/load.ts';
import type { ServerProcess } from './servers.ts';

const ROOT = join(import.meta.dirname, '..');

interface PeerReady {
  /** The Authorization headers of a peer that makes its keys itself. */
  readonly headers?: readonly string[];
}

/** Builds a peer that is one Go file; if it cannot, reports that and returns undefined. */
export function buildGo(file: string, directory: string): string | undefined {
  const built = join(directory, 'go-peer');
  const { status } = spawnSync('go', ['build', '-o', built, peer(file)], { stdio: 'inherit' });
  if (status === 0) return built;
  console.error(`without ${file}, which needs go`);
  return undefined;
}

/**
 * Builds a peer that is a Rust package; if it cannot, reports that and returns undefined. The first build
 * takes a minute.
 */
export function buildRust(name: string): string | undefined {
  const target = join(ROOT, 'node_modules/.cache', `${name}-peer`);
  const manifest = join(peer(name), 'Cargo.toml');
  const args = ['build', '--release', '--quiet', '--manifest-path', manifest, '--target-dir', target];
  const { status } = spawnSync('cargo', args, { stdio: 'inherit' });
  if (status === 0) return join(target, 'release', `${name}_peer`);
  console.error(`without ${name}, which needs cargo and crates.io`);
  return undefined;
}

/** Starts a peer that is a separate program, with the keys of `keysFile`, pinned to the server core. */
export function startProgram(name: string, program: string, keysFile: string): Promise<ServerProcess> {
  const port = freePort();
  return startOther(name, port, [program, String(port), keysFile]);
}

/**
 * Starts a peer written for Node.js, pinned to the server core; `file` prints a line of JSON when it is
 * ready.
 */
export async function startPeer(
  name: string,
  file: string,
  ...args: string[]
): Promise<ServerProcess & { readonly headers: readonly string[] }> {
  const port = freePort();
  const command = pinned(SERVER_CORE, [process.execPath, peer(file), String(port), ...args]);
  const { pid, ready, stop } = await startProcess<PeerReady>(command, {}, 'ready');
  return { name, port, pid, stop, headers: ready.headers ?? [] };
}

/** Starts nginx with the Lua LRU and the keys of `keysFile`, with one worker, pinned to the server core. */
export function startNginx(nginx: string, directory: string, keysFile: string): Promise<ServerProcess> {
  const port = freePort();
  const conf = configured('nginx-lua.conf', directory, {
    PORT: String(port),
    KEYS: keysFile,
    DIRECTORY: directory,
    // A worker that root starts would otherwise run as a user who cannot read the keys.
    USER: process.getuid?.() === 0 ? 'user root;' : '',
  });
  return startOther('nginx + Lua LRU', port, [nginx, '-c', conf, '-p', directory]);
}

/** Starts HAProxy with the keys in a map file, with one thread, pinned to the server core. */
export function startHaproxy(directory: string, keys: readonly string[]): Promise<ServerProcess> {
  const port = freePort();
  const map = join(directory, 'keys.map');
  writeFileSync(map, keys.map((key, i) => `${key} key_${i}\n`).join(''));
  const conf = configured('haproxy-map.cfg', directory, { PORT: String(port), MAP: map });
  return startOther('HAProxy, key of a header in a map file', port, ['haproxy', '-db', '-f', conf]);
}

/** Starts Envoy with the keys in its filter, with one thread, pinned to the server core. */
export function startEnvoy(directory: string, keys: readonly string[]): Promise<ServerProcess> {
  const port = freePort();
  const credentials = JSON.stringify(keys.map((key, i) => ({ key, client: `key_${i}` })));
  const conf = configured('envoy-api-key-auth.yaml', directory, {
    PORT: String(port),
    CREDENTIALS: credentials,
  });
  return startOther("Envoy, key of a header in its filter's configuration", port, [
    'envoy',
    ...['-c', conf, '--concurrency', '1', '--log-level', 'error'],
  ]);
}

/** Installs the peers' dependencies, apart from the project's. */
export function installPeers(): void {
  const cwd = join(import.meta.dirname, 'peers');
  const { status } = spawnSync(
    'npm',
    ['ci', '--legacy-peer-deps', '--no-audit', '--no-fund', '--loglevel=error'],
    {
      cwd,
      stdio: 'inherit',
    },
  );
  if (status !== 0) throw new Error(`npm ci in ${cwd} ended with ${status}`);
}

/** Starts a program that is configured by a file of `peers/`, in which PORT, DIRECTORY and more are filled in. */
export function startConfigured(
  name: string,
  directory: string,
  command: readonly string[],
  values: Readonly<Record<string, string>>,
): Promise<ServerProcess> {
  const port = freePort();
  const file = configured(name, directory, {
    ...{ PORT: String(port), DIRECTORY: directory, USER: process.getuid?.() === 0 ? 'user root;' : '' },
    ...values,
  });
  return startOther(
    name,
    port,
    command.map((word) => (word === '$FILE' ? file : word)),
  );
}

/** Fills in the placeholders of a peer's configuration; returns the path of the result. */
function configured(name: string, directory: string, values: Readonly<Record<string, string>>): string {
  let text = readFileSync(peer(name), 'utf8');
  for (const [placeholder, value] of Object.entries(values)) text = text.replaceAll(placeholder, value);
  const file = join(directory, name);
  writeFileSync(file, text);
  return file;
}

/** Starts a server that does not report when it is ready, pinned to the server core. */
async function startOther(name: string, port: number, command: readonly string[]): Promise<ServerProcess> {
  const [file = '', ...args] = pinned(SERVER_CORE, command);
  const child = spawn(file, args, { stdio: 'inherit' });
  const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  const answers = () =>
    fetch(`http://127.0.0.1:${port}/`).then(
      () => true,
      () => false,
    );
  while (!(await answers())) await new Promise((resolve) => setTimeout(resolve, 10));
  return {
    name,
    port,
    pid: child.pid ?? 0,
    async stop() {
      child.kill('SIGTERM');
      await exited;
    },
  };
}
