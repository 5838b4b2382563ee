import { type ChildProcess, execFile } from 'node:child_process';
import { once } from 'node:events';
import {
  appendFileSync,
  chmodSync,
  existsSync,
  globSync,
  mkdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { spawnBound } from '../../deploy/dev/redis-server.ts';
import { bareEnv } from '../harness/bare-machine.ts';
import { keepWords } from '../harness/last-words.ts';
import { freePort } from '../harness/ports.ts';
import { scratch } from '../harness/scratch.ts';

const ROOT = join(import.meta.dirname, '..', '..');
/** Commands of other machines and of root, as far as pages use them. */
// biome-ignore-start lint/suspicious/noTemplateCurlyInString: of a shell
const STUBS: Readonly<Record<string, string>> = {
  systemctl: 'exec curl -sSf -X POST "$SYSTEMD" -d "$*"',
  scp: 'host=${3#root@} && mkdir -p "$MACHINES/$host" && cp -r --remove-destination "$2" "$MACHINES/${host%%:*}${host#*:}"',
  // As with journald: with time and host before each line, unless they are not wanted.
  journalctl:
    'case " $* " in *" -o cat "*) p= ;; *) p="Jan 02 00:00:01 host $2[42]: " ;; esac; exec sed "s/^/$p/" "$MACHINES/$host/run/$2.journal"',
  ssh: 'export host=${1#root@}; shift; for word; do case $word in /*) word=$MACHINES/$host$word ;; esac; set -- "$@" "$word"; shift; done; "$@"',
  chgrp: 'exec /bin/chgrp -R --reference="$3" "$3"',
  ...{ 'apt-get': ':', git: ':', npm: '[ "$1" = ci ] && exit; PATH=${PATH#*:}; exec npm "$@"' },
};
// biome-ignore-end lint/suspicious/noTemplateCurlyInString: of a shell

type Env = Record<string, string>;

/** A unit of deploy/systemd on a machine, run as systemd would, but without its confinement. */
class Unit {
  readonly #text: string;
  readonly #machine: Machine;
  readonly #name: string;
  #process: ChildProcess | undefined;

  constructor(machine: Machine, name: string) {
    this.#machine = machine;
    this.#name = name;
    const credentials = join(machine.root, 'run/credentials', name);
    this.#text = readFileSync(join(ROOT, `deploy/systemd/${name}.service`), 'utf8')
      .replaceAll('/opt/keyfence', ROOT)
      .replaceAll(/(?<==-?|:| )\/etc\/keyfence/g, join(machine.root, 'etc/keyfence'))
      .replaceAll('%d', credentials)
      .replaceAll('%S', join(machine.root, 'var/lib'))
      .replaceAll('%t', join(machine.root, 'run'));
  }

  get pid(): number | undefined {
    return this.#process?.pid;
  }

  #all(setting: string): string[] {
    return [...this.#text.matchAll(new RegExp(`^${setting}=(.*)$`, 'gm'))].map(([, value = '']) => value);
  }

  /** The words of a line, where quotes hold a word together. */
  #words(text: string): string[] {
    return [...text.matchAll(/"([^"]*)"|(\S+)/g)].map(([, quoted, word]) => quoted ?? word ?? '');
  }

  #env(): Env {
    const env: Env = { PATH: process.env['PATH'] ?? '' };
    const set = (pair: string) => {
      const [, name = '', value = ''] = /^(\w+)=(.*)$/.exec(pair) ?? [];
      env[name] = value.replace(/^"(.*)"$/, '$1');
    };
    for (const line of this.#all('Environment')) this.#words(line).forEach(set);
    for (const file of this.#all('EnvironmentFile')) {
      if (!file.startsWith('-') || existsSync(file.slice(1)))
        readFileSync(file.replace(/^-/, ''), 'utf8').split('\n').filter(Boolean).forEach(set);
    }
    return env;
  }

  /** Copies the credentials, and starts. */
  async start(): Promise<void> {
    await this.end('SIGTERM');
    const folder = join(this.#machine.root, 'run/credentials', this.#name);
    rmSync(folder, { recursive: true, force: true });
    mkdirSync(folder, { recursive: true });
    const defaults = new Map(this.#all('SetCredential').map((line) => line.split(':') as [string, string]));
    for (const line of this.#all('LoadCredential')) {
      const [name = '', file = ''] = line.split(':');
      const text = existsSync(file) ? readFileSync(file) : defaults.get(name)?.replace('\\n', '\n');
      if (text === undefined) throw new Error(`${this.#name} needs ${file}`);
      writeFileSync(join(folder, name), text);
    }
    const state = this.#all('StateDirectory')[0];
    if (state) mkdirSync(join(this.#machine.root, 'var/lib', state), { recursive: true });
    for (const runtime of this.#all('RuntimeDirectory')) {
      rmSync(join(this.#machine.root, 'run', runtime), { recursive: true, force: true });
      mkdirSync(join(this.#machine.root, 'run', runtime), { recursive: true });
    }
    for (const before of this.#all('ExecStartPre')) await this.#run(before);
    const [command = '', ...args] = this.#words(this.#all('ExecStart')[0] ?? '');
    const [cwd = ROOT] = this.#all('WorkingDirectory');
    if (cwd !== ROOT) throw new Error(`${this.#name}: ${cwd}`);
    const child = spawnBound(command, args, this.#env());
    child.stdout?.on('data', (chunk: Buffer) => {
      keepWords(`${this.#name}`, chunk.toString());
      appendFileSync(join(this.#machine.root, `run/${this.#name}.journal`), chunk);
    });
    this.#process = child;
  }

  /** As `systemctl stop`: what the unit wants to be run before, then SIGTERM. */
  async stop(): Promise<void> {
    const [before] = this.#all('ExecStop');
    if (before && this.#isRunning) await this.#run(before);
    await this.end('SIGTERM');
  }

  async #run(line: string): Promise<void> {
    const [command = '', ...args] = this.#words(line.replace(/^\+/, ''));
    await promisify(execFile)(command, args, { env: this.#env() });
  }

  get #isRunning(): boolean {
    return (
      this.#process !== undefined && this.#process.exitCode === null && this.#process.signalCode === null
    );
  }

  async end(signal: NodeJS.Signals): Promise<void> {
    if (!this.#process || !this.#isRunning) return;
    const exited = once(this.#process, 'exit');
    this.#process.kill(signal);
    await exited;
  }
}

/** One machine: a folder that stands for its root. */
export class Machine {
  readonly address: string;
  readonly root: string;
  readonly #units = new Map<string, Unit>();

  constructor(address: string, root: string) {
    this.address = address;
    this.root = root;
  }

  unit(name: string): Unit {
    const unit = this.#units.get(name) ?? new Unit(this, name);
    this.#units.set(name, unit);
    return unit;
  }

  /** It is gone at once. */
  async kill(): Promise<void> {
    await Promise.all([...this.#units.values()].map((unit) => unit.end('SIGKILL')));
  }

  async systemctl(verb: string, units: readonly string[]): Promise<void> {
    for (const unit of units.map((name) => this.unit(name))) {
      if (verb === 'stop' || verb === 'restart') await unit.stop();
      if (verb === 'start' || verb === 'restart') await unit.start();
    }
  }
}

/** Several machines with an address of this one each, and commands of pages that are run on them. */
export class Machines {
  readonly folder = scratch('machines');
  readonly machines: readonly Machine[];
  readonly #server: Server;
  /** Ports of Redis and of Sentinel. */
  readonly env: Env;

  private constructor(addresses: readonly string[], server: Server, env: Env) {
    this.machines = addresses.map((address) => new Machine(address, join(this.folder, address)));
    this.#server = server;
    this.env = env;
    const stubs = join(this.folder, 'stubs');
    mkdirSync(stubs);
    for (const [name, text] of Object.entries(STUBS)) {
      writeFileSync(join(stubs, name), `#!/bin/sh\n${text}\n`);
      chmodSync(join(stubs, name), 0o755);
    }
  }

  static async start(addresses: readonly string[]): Promise<Machines> {
    const server = createServer((request, response) => {
      const parts: Buffer[] = [];
      request.on('data', (part) => parts.push(part));
      request.on('end', async () => {
        const [verb = '', ...units] = Buffer.concat(parts).toString().split(' ');
        const machine = machines.machines[Number(request.url?.slice(1))];
        try {
          if (units.join() !== '--now,redis-server') await machine?.systemctl(verb, units);
          response.end();
        } catch (error) {
          response.writeHead(500).end(String(error));
        }
      });
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const env = { REDIS_PORT: String(await freePort()), SENTINEL_PORT: String(await freePort()) };
    const machines = new Machines(addresses, server, env);
    return machines;
  }

  at(index: number): Machine {
    const machine = this.machines[index];
    if (!machine) throw new Error(`no machine ${index}`);
    return machine;
  }

  /** Runs a page's commands on one of the machines, as root there. */
  async run(commands: string, index = 0, more: Env = {}): Promise<string> {
    const { address, root } = this.at(index);
    const [first = '', second = '', third = ''] = this.machines.map((machine) => machine.address);
    const here = commands
      .replaceAll('/opt/keyfence', ROOT)
      .replaceAll(/(?<=[=<] ?|\. )(?=\/etc\/keyfence\/)/g, root);
    const { port } = this.#server.address() as AddressInfo;
    const env = bareEnv({
      ...{ FIRST: first, SECOND: second, THIRD: third, MACHINE: address, DESTDIR: root },
      ...{ MACHINES: this.folder, SYSTEMD: `http://127.0.0.1:${port}/${index}`, ...this.env },
      ...more,
    });
    env['PATH'] = `${join(this.folder, 'stubs')}:${env['PATH']}`;
    return (await promisify(execFile)('sh', ['-ec', here], { cwd: ROOT, env })).stdout;
  }

  /** What install.sh wrote, where the folder of each machine is its root, and ports are free. */
  adapt(index: number, more: Readonly<Record<string, Env>>): void {
    const { root } = this.at(index);
    for (const file of globSync(join(root, 'etc/keyfence/*.env'))) {
      const text = readFileSync(file, 'utf8').replaceAll(/(?<==)\/(?=etc|var)/g, `${root}/`);
      const name = file.replace(/.*\/(.*)\.env$/, '$1');
      const own = name === 'redis' ? { ...this.env, ...more[name] } : more[name];
      writeFileSync(file, text);
      for (const [setting, value] of Object.entries(own ?? {})) appendFileSync(file, `${setting}=${value}\n`);
    }
  }

  async stop(): Promise<void> {
    await Promise.all(this.machines.map((machine) => machine.kill()));
    this.#server.close();
    rmSync(this.folder, { recursive: true, force: true });
  }
}
