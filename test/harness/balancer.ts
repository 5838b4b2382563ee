import type { ChildProcess } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { request } from 'undici';
import { spawnBound } from '../../deploy/dev/redis-server.ts';
import { freePort } from './ports.ts';
import { skippedWithout } from './programs.ts';
import { eventually } from './waiting.ts';

/** A process behind the balancer. */
export interface Server {
  readonly address: string;
  readonly adminAddress: string;
}

/** Why there is no balancer here; '' where there is one. */
export const noBalancer = skippedWithout('haproxy');

/** HAProxy in front of several of our processes, which it turns away from while `/readyz` is not 200. */
export class Balancer {
  readonly address: string;
  readonly #stats: string;
  readonly #process: ChildProcess;

  private constructor(port: number, statsPort: number, process: ChildProcess) {
    this.address = `http://127.0.0.1:${port}`;
    this.#stats = `http://127.0.0.1:${statsPort}/;csv`;
    this.#process = process;
  }

  /** Resolves when it has found every server up. */
  static async start(directory: string, servers: readonly Server[]): Promise<Balancer> {
    const [port, statsPort] = [await freePort(), await freePort()];
    const file = join(directory, `haproxy-${port}.cfg`);
    const lines = servers.map(
      ({ address, adminAddress }, i) =>
        `  server s${i} ${new URL(address).host} check port ${new URL(adminAddress).port}`,
    );
    writeFileSync(
      file,
      `defaults
  mode http
  timeout connect 30s
  timeout client 30s
  timeout server 60s
  # A slow answer to a check is a busy machine, not a server that leaves.
  timeout check 10s
  option redispatch
frontend stats
  bind 127.0.0.1:${statsPort}
  stats enable
  stats uri /
frontend callers
  bind 127.0.0.1:${port}
  default_backend ours
backend ours
  balance roundrobin
  option httpchk GET /readyz
  default-server inter 100ms fall 1 rise 1
${lines.join('\n')}
`,
    );
    const process = spawnBound('haproxy', ['-db', '-q', '-f', file]);
    process.stdout?.resume();
    const balancer = new Balancer(port, statsPort, process);
    await balancer.untilUp(servers.length);
    return balancer;
  }

  /** Resolves when exactly this many servers are up. */
  async untilUp(count: number): Promise<void> {
    const areUp = async () => (await this.#up()) === count;
    await eventually(areUp, `HAProxy does not see ${count} servers up`);
  }

  async stop(): Promise<void> {
    const exited = new Promise((resolve) => this.#process.once('exit', resolve));
    this.#process.kill('SIGTERM');
    await exited;
  }

  async #up(): Promise<number> {
    const csv = await request(this.#stats).then(
      ({ body }) => body.text(),
      () => '', // not listening yet
    );
    const rows = csv.split('\n').map((line) => line.split(','));
    const status = rows[0]?.indexOf('status') ?? -1;
    return rows.filter(
      (row) => row[0] === 'ours' && /^s\d/.test(row[1] ?? '') && row[status]?.startsWith('UP'),
    ).length;
  }
}
