import { rmSync } from 'node:fs';
import { Agent, request } from 'undici';
import type { Process } from '../../harness/processes.ts';
import { scratch } from '../../harness/scratch.ts';
import { eventually } from '../../harness/waiting.ts';
import { build, ROOT_KEY, VERIFIERS } from './build.ts';

const CALLERS = 200;
const CREDITS = 1_000_000;

// biome-ignore lint/suspicious/noExplicitAny: answers of several shapes
type Body = any;

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

  begin(id: string, life: string): void {
    this.#running.set(id, life);
    this.most = Math.max(this.most, this.#running.size);
    this.accepted++;
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
 * Lets many callers hold places and credits of one key at all verifiers, whose processes are killed one after the other.
 * Resolves with what they saw, and what is left of the credits once no more of them are missing than nobody knows of.
 */
export async function holdThroughKills(
  limit: number,
  seconds: number,
): Promise<{ work: HeldWork; left: number; lost: number }> {
  const directory = scratch('holds');
  const stop: (() => Promise<unknown>)[] = [];
  const agent = new Agent({ connections: 64, headersTimeout: 15_000, bodyTimeout: 15_000 });
  const post = async (address: string, path: string, body: object, headers: object = {}): Promise<Body> => {
    try {
      const answer = await request(`${address}/v1/${path}`, {
        ...{ method: 'POST', dispatcher: agent, body: JSON.stringify(body) },
        headers: { 'content-type': 'application/json', ...headers },
      });
      const read: Body = await answer.body.json();
      return answer.statusCode === 200 ? read : undefined;
    } catch {
      return undefined;
    }
  };
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
    const untilMs = performance.now() + seconds * 1000;
    const call = async (i: number) => {
      for (let at = i; performance.now() < untilMs; at++) {
        const place = at % VERIFIERS;
        const { address } = verifiers[place] as Process;
        const life = work.lifeOf(place);
        const credits = 1 + Math.floor(Math.random() * 40);
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
        work.begin(id, life);
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
    await Promise.all([kill(), ...Array.from({ length: CALLERS }, (_, i) => call(i))]);
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
      const gone = CREDITS - left;
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
