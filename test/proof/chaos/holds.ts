import { rmSync } from 'node:fs';
import { Agent, request } from 'undici';
import type { Process } from '../../harness/processes.ts';
import { scratch } from '../../harness/scratch.ts';
import { eventually } from '../../harness/waiting.ts';
import { build, ROOT_KEY, VERIFIERS } from './build.ts';
import { type Body, postBy } from './post.ts';

const CALLERS = 200;
const CREDITS = 1_000_000;

/** Work that is held at one life of a verifier's process. */
class HeldWork {
  /** How often each verifier was killed. */
  readonly lives: number[] = Array.from({ length: VERIFIERS }, () => 0);
  readonly #running = new Map<string, string>();
  most = 0;
  accepted = 0;
  refused = 0;
  settled = 0;
  /** Credits of holds of which nobody knows how they ended. */
  unknown = 0;
  /** Credits that changes gave, less those that they took. */
  given = 0;
  changes = 0;
  /** By how many an accepted question was above every limit that was in force while it was asked. */
  over = Number.NEGATIVE_INFINITY;
  /** A limit is in force from the call that sets it until the next one is complete. */
  readonly #limits: { readonly limit: number; untilMs: number }[] = [];

  begin(id: string, life: string, askedAtMs: number): void {
    this.#running.set(id, life);
    this.most = Math.max(this.most, this.#running.size);
    this.accepted++;
    const inForce = this.#limits.filter(({ untilMs }) => untilMs >= askedAtMs).map(({ limit }) => limit);
    this.over = Math.max(this.over, this.#running.size - Math.max(...inForce));
  }

  /** Notes a limit before `set` sets it, and that those before it are over once that is complete. */
  async limitTo(limit: number, set: () => Promise<boolean>): Promise<void> {
    const before = [...this.#limits];
    this.#limits.push({ limit, untilMs: Number.POSITIVE_INFINITY });
    if (!(await set())) return;
    this.changes++;
    for (const each of before) each.untilMs = Math.min(each.untilMs, performance.now());
  }

  end(id: string): void {
    this.#running.delete(id);
  }

  /** What a process held ends with it. */
  kill(at: number): void {
    const life = this.lifeOf(at);
    for (const [id, of] of this.#running) if (of === life) this.#running.delete(id);
    this.lives[at] = (this.lives[at] ?? 0) + 1;
  }

  lifeOf(at: number): string {
    return `${at}.${this.lives[at]}`;
  }
}

/**
 * Lets many callers hold places and credits of one key at all verifiers, whose processes are killed one after the other,
 * while the limit is lowered and raised, and credits come and go.
 * Resolves with what they saw, and what is left of the credits once no more of them are missing than nobody knows of.
 */
export async function holdThroughKills(
  limit: number,
  seconds: number,
): Promise<{ work: HeldWork; left: number; lost: number }> {
  const directory = scratch('holds');
  const stop: (() => Promise<unknown>)[] = [];
  const agent = new Agent({ connections: 64, headersTimeout: 15_000, bodyTimeout: 15_000 });
  const post = postBy(agent);
  try {
    const { verifiers, controlPlane } = await build('single', directory, stop);
    const authorization = { authorization: `Bearer ${ROOT_KEY}` };
    await post(controlPlane.address, 'apis.createApi', { apiId: 'shop', name: 'shop' }, authorization);
    const { key, keyId } = await post(
      controlPlane.address,
      'keys.createKey',
      { apiId: 'shop', remaining: CREDITS, concurrency: [{ name: 'jobs', limit }] },
      authorization,
    );
    const work = new HeldWork();
    await work.limitTo(limit, async () => true);
    const untilMs = performance.now() + seconds * 1000;
    const call = async (i: number) => {
      for (let at = i; performance.now() < untilMs; at++) {
        const place = at % VERIFIERS;
        const { address } = verifiers[place] as Process;
        const life = work.lifeOf(place);
        const credits = 1 + Math.floor(Math.random() * 40);
        const askedAtMs = performance.now();
        const answer = await post(address, 'keys.verifyKey', { key, hold: { credits } });
        if (answer?.code !== 'VALID') {
          if (answer === undefined) work.unknown += credits;
          else work.refused++;
          await rest(30);
          continue;
        }
        if (life !== work.lifeOf(place)) {
          work.unknown += credits;
          continue;
        }
        const { id } = answer.hold;
        work.begin(id, life, askedAtMs);
        await rest(5 + Math.random() * 45);
        work.end(id);
        const cost = Math.floor(Math.random() * 60);
        // Now and then it is not said, and now and then twice.
        if (Math.random() < 0.02) {
          work.unknown += credits;
          continue;
        }
        const released = await post(address, 'keys.release', { hold: id, cost });
        if (released === undefined) work.unknown += Math.max(credits, cost);
        else work.settled += released.charged;
        if (Math.random() < 0.2) await post(address, 'keys.release', { hold: id, cost });
      }
    };
    const kill = async () => {
      for (let i = 0; performance.now() < untilMs - 2000; i++) {
        await rest(1200);
        const at = i % VERIFIERS;
        work.kill(at);
        await verifiers[at]?.stop('SIGKILL');
        await verifiers[at]?.start();
      }
    };
    const admin = (operation: string, fields: object) =>
      post(controlPlane.address, operation, { keyId, waitMs: 10_000, ...fields }, authorization);
    const change = async () => {
      for (let i = 0; performance.now() < untilMs - 2000; i++) {
        const next = [Math.ceil(limit / 2), limit, Math.ceil(limit / 5)][i % 3] as number;
        await work.limitTo(next, async () => {
          const done = await admin('keys.updateKey', { concurrency: [{ name: 'jobs', limit: next }] });
          return done?.propagation?.state === 'complete';
        });
        const value = 1 + Math.floor(Math.random() * 5000);
        const op = i % 2 === 0 ? 'decrement' : 'increment';
        const given = op === 'increment' ? value : -value;
        if (await admin('keys.updateRemaining', { op, value, operationId: `change-of-credits-${i}` }))
          work.given += given;
        else throw new Error('a change of credits failed, though its control plane lives');
        await rest(150);
      }
    };
    await Promise.all([kill(), change(), ...Array.from({ length: CALLERS }, (_, i) => call(i))]);
    let left = 0;
    let lost = 0;
    const look = async () => {
      const answer = await request(`${controlPlane.address}/v1/keys.getKey?keyId=${keyId}`, {
        ...{ dispatcher: agent, headers: authorization },
      });
      const view: Body = await answer.body.json();
      const before = left;
      ({ remaining: left, remainingLost: lost = 0 } = view);
      // Verifiers tell later what they spent of their slices.
      const gone = CREDITS + work.given - left;
      return before === left && work.settled <= gone && gone - lost <= work.settled + work.unknown;
    };
    await eventually(look, 'more was settled than is gone, or credits are missing that nobody spent');
    return { work, left, lost };
  } finally {
    await agent.destroy();
    for (const end of stop.reverse()) await end();
    rmSync(directory, { recursive: true, force: true });
  }
}

const rest = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
