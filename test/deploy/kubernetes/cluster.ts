import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { builtPath, ETCD, type GoTool, HELM, kubernetesTool } from '../../../deploy/dev/go-tools.ts';
import { freePort } from '../../harness/ports.ts';
import { type Manifest, objectsOf } from '../kustomize.ts';

const READY_MS_MAX = 120_000;
const COMMAND_MS_MAX = 120_000;
const STOP_MS_MAX = 10_000;
const POLL_MS = 100;
const LOG_CHARS = 3000;

/** Exit status and output of a command. */
export interface Ended {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** All commands of a cluster of one release, in the order in which they are started, and its kubectl. */
export const toolsOf = (release: string): GoTool[] => [
  ETCD,
  ...['kube-apiserver', 'kube-controller-manager', 'kubectl'].map((name) => kubernetesTool(name, release)),
];

/**
 * The control plane of a Kubernetes cluster on loopback: it accepts, refuses and changes objects as a real one does, and
 * makes pods, which no kubelet runs.
 */
export class Cluster {
  readonly release: string;
  readonly directory = mkdtempSync(join(tmpdir(), 'keyfence-cluster-'));
  readonly kubeconfig = join(this.directory, 'kubeconfig');
  readonly #children: ChildProcess[] = [];

  private constructor(release: string) {
    this.release = release;
  }

  static async start(release: string): Promise<Cluster> {
    const cluster = new Cluster(release);
    try {
      await cluster.#start();
      return cluster;
    } catch (error) {
      await cluster.stop();
      throw error;
    }
  }

  async #start(): Promise<void> {
    const [etcdPort, peerPort, port, managerPort] = await Promise.all([
      freePort(),
      freePort(),
      freePort(),
      freePort(),
    ]);
    const file = (name: string) => join(this.directory, name);
    const etcdUrl = `http://127.0.0.1:${etcdPort}`;
    const peerUrl = `http://127.0.0.1:${peerPort}`;
    this.#spawn(ETCD, [
      ...[
        '--data-dir',
        file('etcd'),
        '--unsafe-no-fsync',
        '--log-level',
        'warn',
        '--name',
        'one',
        '--initial-cluster',
        `one=${peerUrl}`,
      ],
      ...['--listen-client-urls', etcdUrl, '--advertise-client-urls', etcdUrl],
      ...['--listen-peer-urls', peerUrl, '--initial-advertise-peer-urls', peerUrl],
    ]);

    const token = randomBytes(16).toString('hex');
    writeFileSync(file('tokens'), `${token},admin,admin,system:masters\n`, { mode: 0o600 });
    const accounts = generateKeyPairSync('rsa', {
      modulusLength: 2048,
      publicKeyEncoding: { type: 'spki', format: 'pem' },
      privateKeyEncoding: { type: 'pkcs1', format: 'pem' },
    });
    writeFileSync(file('accounts.pub'), accounts.publicKey);
    writeFileSync(file('accounts.key'), accounts.privateKey, { mode: 0o600 });
    mkdirSync(file('certificates'));
    this.#spawn(kubernetesTool('kube-apiserver', this.release), [
      ...['--etcd-servers', etcdUrl, '--bind-address', '127.0.0.1', '--secure-port', String(port)],
      ...[
        '--advertise-address',
        '127.0.0.1',
        '--cert-dir',
        file('certificates'),
        '--token-auth-file',
        file('tokens'),
      ],
      // No node tells that it is ready, and the pods of a DaemonSet are to be made all the same.
      ...['--disable-admission-plugins', 'TaintNodesByCondition', '--endpoint-reconciler-type', 'none'],
      ...['--authorization-mode', 'RBAC', '--service-cluster-ip-range', '10.0.0.0/24'],
      ...['--service-account-issuer', 'https://kubernetes.default.svc'],
      ...['--service-account-key-file', file('accounts.pub')],
      ...['--service-account-signing-key-file', file('accounts.key')],
    ]);
    const one = (name: string, value: object) => [{ name, ...value }];
    writeFileSync(
      this.kubeconfig,
      JSON.stringify({
        apiVersion: 'v1',
        kind: 'Config',
        'current-context': 'test',
        clusters: one('test', {
          cluster: { server: `https://127.0.0.1:${port}`, 'insecure-skip-tls-verify': true },
        }),
        users: one('admin', { user: { token } }),
        contexts: one('test', { context: { cluster: 'test', user: 'admin' } }),
      }),
      { mode: 0o600 },
    );
    await this.until(
      () => this.try('get', '--raw', '/readyz').status === 0,
      'the API server is ready',
      READY_MS_MAX,
    );
    this.#spawn(kubernetesTool('kube-controller-manager', this.release), [
      ...[
        '--kubeconfig',
        this.kubeconfig,
        '--bind-address',
        '127.0.0.1',
        '--secure-port',
        String(managerPort),
      ],
      ...['--service-account-private-key-file', file('accounts.key'), '--leader-elect=false'],
      ...['--controllers', '*,-node-lifecycle-controller'],
      ...['--root-ca-file', file('certificates/apiserver.crt'), '--use-service-account-credentials=false'],
    ]);
    await this.until(
      () => this.try('get', 'serviceaccount', 'default').status === 0,
      'controllers run',
      READY_MS_MAX,
    );
  }

  /** Runs kubectl and returns how it ended. */
  try(...args: string[]): Ended {
    return this.#kubectl(args);
  }

  /** Runs kubectl and returns what it printed. Throws with its own words where it refuses, or warns. */
  kubectl(...args: string[]): string {
    return said(args, this.#kubectl(args));
  }

  /** The same with text for its standard input. */
  kubectlWith(input: string, ...args: string[]): string {
    return said(args, this.#kubectl(args, input));
  }

  /** The objects that kubectl prints as YAML. */
  objects(...args: string[]): Manifest[] {
    return objectsOf(this.kubectl(...args));
  }

  /** Runs helm and returns what it printed. Throws with its own words where it refuses. */
  helm(...args: string[]): string {
    return said(args, this.#run(HELM, args));
  }

  apply(objects: readonly object[]): void {
    this.kubectlWith(listOf(objects), 'apply', '-f', '-');
  }

  /** Makes a namespace of a Pod Security level, which refuses what it does not allow and would warn of it. */
  makeNamespace(name: string, level: string, more: Record<string, string> = {}): void {
    const levels = ['enforce', 'warn'].map((mode) => [`pod-security.kubernetes.io/${mode}`, level]);
    const labels = { ...Object.fromEntries(levels), ...more };
    this.apply([{ apiVersion: 'v1', kind: 'Namespace', metadata: { name, labels } }]);
  }

  #kubectl(args: string[], input = ''): Ended {
    return this.#run(kubernetesTool('kubectl', this.release), args, input);
  }

  #run(tool: GoTool, args: string[], input = ''): Ended {
    const { status, stdout, stderr } = spawnSync(builtPath(tool), args, {
      encoding: 'utf8',
      input,
      // Nothing of the user's own.
      env: { PATH: process.env['PATH'], HOME: this.directory, KUBECONFIG: this.kubeconfig },
      timeout: COMMAND_MS_MAX,
    });
    return { status, stdout, stderr };
  }

  /** Resolves when something holds; rejects with the logs where it does not within `msMax`. */
  async until(holds: () => boolean, what: string, msMax = 30_000): Promise<void> {
    const giveUpAtMs = performance.now() + msMax;
    while (!holds()) {
      const dead = this.#children.find(
        ({ exitCode, signalCode }) => exitCode !== null || signalCode !== null,
      );
      if (dead || performance.now() > giveUpAtMs)
        throw new Error(`${what}: not within ${msMax} ms\n${this.#logs()}`);
      await sleep(POLL_MS);
    }
  }

  async stop(): Promise<void> {
    // The API server first, or it waits for etcd.
    for (const child of this.#children.toReversed()) {
      if (child.exitCode !== null || child.signalCode !== null) continue;
      const ended = new Promise((resolve) => child.once('exit', resolve));
      child.kill('SIGTERM');
      const timer = setTimeout(() => child.kill('SIGKILL'), STOP_MS_MAX);
      await ended;
      clearTimeout(timer);
    }
    rmSync(this.directory, { recursive: true, force: true });
  }

  #spawn(tool: GoTool, args: string[]): void {
    const log = openSync(join(this.directory, `${tool.name}.log`), 'a');
    // It does not outlive a test that was killed.
    const bound = ['--pdeathsig', 'KILL', '--', builtPath(tool), ...args];
    this.#children.push(spawn('setpriv', bound, { stdio: ['ignore', log, log], cwd: this.directory }));
  }

  #logs(): string {
    return ['etcd', 'kube-apiserver', 'kube-controller-manager']
      .map((name) => `${name}: ${logTail(join(this.directory, `${name}.log`))}`)
      .join('\n');
  }
}

function said(args: string[], { status, stdout, stderr }: Ended): string {
  if (status !== 0 || /^Warning:/m.test(stderr)) throw new Error(`${args.join(' ')}: ${stdout}\n${stderr}`);
  return stdout;
}

/** Objects as a text that kubectl reads. */
export const listOf = (items: readonly object[]) => JSON.stringify({ apiVersion: 'v1', kind: 'List', items });

function logTail(file: string): string {
  try {
    return readFileSync(file, 'utf8').slice(-LOG_CHARS);
  } catch (error) {
    return String(error);
  }
}
