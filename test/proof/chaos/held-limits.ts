import { rmSync } from 'node:fs';
import { Agent } from 'undici';
import type { Process } from '../../harness/processes.ts';
import { scratch } from '../../harness/scratch.ts';
import { build, ROOT_KEY, VERIFIERS } from './build.ts';
import { postBy } from './post.ts';

const CALLERS = 40;
/** The limit of each window. */
export const LIMIT = 5000;
const WINDOW_MS = 2000;

/** What was settled in each window, by its end, and of what nobody knows how it ended. */
interface Windows {
  readonly settled: Map<number, number>;
  readonly unknown: Map<number, number>;
  lost: number;
  returned: number;
  refused: number;
  /** Holds that took less than they asked for. */
  less: number;
  kills: number;
}

const add = (sums: Map<number, number>, at: number, amount: number) =>
  sums.set(at, (sums.get(at) ?? 0) + amount);

/** Lets callers reserve tokens of one key at all verifiers, and settle less, while verifiers are killed one after the other. */
export async function reserveThroughKills(seconds: number): Promise<Windows> {
  const directory = scratch('held-limits');
  const stop: (() => Promise<unknown>)[] = [];
  const agent = new Agent({ connections: 64, headersTimeout: 15_000, bodyTimeout: 15_000 });
  const post = postBy(agent);
  const windows: Windows = {
    ...{ settled: new Map(), unknown: new Map() },
    ...{ lost: 0, returned: 0, refused: 0, less: 0, kills: 0 },
  };
  try {
    const { verifiers, controlPlane } = await build('single', directory, stop);
    const authorization = { authorization: `Bearer ${ROOT_KEY}` };
    await post(controlPlane.address, 'apis.createApi', { apiId: 'shop', name: 'shop' }, authorization);
    const ratelimits = [{ name: 'tokens', limit: LIMIT, duration: WINDOW_MS }];
    const { key } = await post(
      controlPlane.address,
      'keys.createKey',
      { apiId: 'shop', ratelimits },
      authorization,
    );
    const untilMs = performance.now() + seconds * 1000;
    const call = async (i: number) => {
      for (let at = i; performance.now() < untilMs; at++) {
        const { address } = verifiers[at % VERIFIERS] as Process;
        const asked = 1 + Math.floor(Math.random() * 1000);
        const least = at % 2 === 0 && { atLeast: Math.ceil(asked / 4) };
        const held = await post(address, 'keys.verifyKey', {
          key,
          hold: { ratelimits: [{ name: 'tokens', cost: asked, ...least }] },
        });
        if (held?.code !== 'VALID') {
          if (held !== undefined) windows.refused++;
          await rest(20);
          continue;
        }
        const cost = least ? held.hold.ratelimits[0].cost : asked;
        if (cost > asked || (least && cost < least.atLeast))
          throw new Error(`${asked} was reserved: ${JSON.stringify(held.hold)}`);
        if (cost < asked) windows.less++;
        const window = held.ratelimits[0].reset;
        await rest(Math.random() * 300);
        const said = Math.floor(Math.random() * (cost + 1));
        const released = await post(address, 'keys.release', { hold: held.hold.id, costs: { tokens: said } });
        const [tokens] = released?.ratelimits ?? [];
        if (tokens === undefined) add(windows.unknown, window, cost);
        else {
          add(windows.settled, window, tokens.charged);
          if (tokens.lost === undefined) windows.returned += cost - said;
          else windows.lost += tokens.lost;
          if (tokens.charged !== said || (tokens.lost ?? 0) > cost - said)
            throw new Error(`${said} of ${cost} was charged ${JSON.stringify(tokens)}`);
        }
      }
    };
    const kill = async () => {
      for (let i = 0; performance.now() < untilMs - 2000; i++) {
        await rest(1200);
        windows.kills++;
        await verifiers[i % VERIFIERS]?.stop('SIGKILL');
        await verifiers[i % VERIFIERS]?.start();
      }
    };
    await Promise.all([kill(), ...Array.from({ length: CALLERS }, (_, i) => call(i))]);
    return windows;
  } finally {
    await agent.destroy();
    for (const end of stop.reverse()) await end();
    rmSync(directory, { recursive: true, force: true });
  }
}

const rest = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
