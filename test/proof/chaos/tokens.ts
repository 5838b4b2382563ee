import { cpSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { createLocalJWKSet, jwtVerify } from 'jose';
import { Agent, request } from 'undici';
import { JWKS_PATH } from '../../../shared/tokens/token-keys.ts';
import { ROOT } from '../../harness/built.ts';
import type { Process } from '../../harness/processes.ts';
import { scratch } from '../../harness/scratch.ts';
import { eventually } from '../../harness/waiting.ts';
import { MUTANTS, planted } from '../simulation/mutants.ts';
import { build, type Deployment, ROOT_KEY, VERIFIERS } from './build.ts';
import { API_IDS, type Fault, faultsOf } from './faults.ts';
import { postBy } from './post.ts';

const STOPPERS = 16;
const ASKERS = 8;
/** The shortest lease with tokens, and a longer wait than the fence with replicas. */
const SETTINGS = {
  ...{ LEASE_MS: '5000', FENCE_WAIT_MS: '14000' },
  ...{ TOKEN_KEY: 'a secret of tokens, long enough for all', AUTHZ_TOKEN: 'true' },
};
/** By how much a clock that reads tokens may differ from that of Redis. */
const SKEW_MS = 1000;
const UNWAITED = 'tokens are not waited for';

/** When the tokens of each key end, and from when on none may be valid. */
export class KeptTokens {
  readonly #endsMs = new Map<string, number>();
  readonly #stoppedAtMs = new Map<string, number>();
  /** Keys with a token that was valid, by a clock that is a second late, when a stop of the key was complete. */
  readonly outlived = new Set<string>();
  count = 0;

  /** Number of keys with tokens. */
  get keys(): number {
    return this.#endsMs.size;
  }

  get stops(): number {
    return this.#stoppedAtMs.size;
  }

  keep(keyId: string, endMs: number): void {
    this.count++;
    this.#endsMs.set(keyId, Math.max(endMs, this.#endsMs.get(keyId) ?? 0));
    this.#compare(keyId);
  }

  /** A stop of the key is complete. Its tokens that arrive later count as well: nobody lets the key pass again. */
  stopped(keyId: string, nowMs: number): void {
    this.#stoppedAtMs.set(keyId, nowMs);
    this.#compare(keyId);
  }

  #compare(keyId: string): void {
    const stoppedAtMs = this.#stoppedAtMs.get(keyId) ?? Number.POSITIVE_INFINITY;
    if ((this.#endsMs.get(keyId) ?? 0) > stoppedAtMs - SKEW_MS) this.outlived.add(keyId);
  }
}

/**
 * Lets callers collect tokens of keys that are disabled and deleted meanwhile, through one fault after the other, for `ms` at
 * least. Then resolves when the same with a control plane that does not wait for tokens is noticed.
 */
export async function collectTokens(
  deployment: Deployment,
  ms: number,
  takes: (kind: number) => boolean,
): Promise<{ kept: KeptTokens; faults: readonly string[] }> {
  const directory = scratch('tokens');
  const stop: (() => Promise<unknown>)[] = [];
  const agent = new Agent({ connections: 64, headersTimeout: 15_000, bodyTimeout: 15_000 });
  const post = postBy(agent);
  try {
    const world = await build(deployment, directory, stop, SETTINGS);
    const { controlPlane, verifiers } = world;
    const admin = (operation: string, body: object) =>
      post(controlPlane.address, operation, body, { authorization: `Bearer ${ROOT_KEY}` });
    for (const apiId of API_IDS) {
      await admin('apis.createApi', { apiId, name: apiId });
      await eventually(
        () => admin('apis.updateApi', { apiId, tokens: true, tokenLeewayMs: 0 }),
        'tokens are not on',
      );
    }
    const jwks = await request(controlPlane.address + JWKS_PATH, { dispatcher: agent });
    const publicKeys = createLocalJWKSet((await jwks.body.json()) as Parameters<typeof createLocalJWKSet>[0]);

    const issued = async (address: string, key: string): Promise<string | undefined> =>
      (await post(address, 'keys.issueToken', { key }))?.token;
    /** The token of a gateway's answer, which may be an earlier one. */
    const handedOut = async (address: string, key: string): Promise<string | undefined> => {
      const asked = { dispatcher: agent, headers: { authorization: `Bearer ${key}` } };
      try {
        const { headers, body } = await request(`${address}/authz/api/*/auth-request`, asked);
        await body.dump();
        return headers['x-key-token']?.toString();
      } catch {
        return undefined;
      }
    };

    const collect = async (kept: KeptTokens, untilOver: () => Promise<unknown>): Promise<void> => {
      const keys: (string | undefined)[] = [];
      let isRunning = true;
      const ask = async () => {
        while (isRunning) {
          const { address } = verifiers[Math.floor(Math.random() * VERIFIERS)] as Process;
          const key = keys[Math.floor(Math.random() * STOPPERS)];
          const token = key && (await (Math.random() < 0.5 ? issued(address, key) : handedOut(address, key)));
          if (token) {
            // By the clock at which its end is not over yet.
            const { payload } = await jwtVerify(token, publicKeys, { currentDate: new Date(0) });
            kept.keep(String(payload.sub), 1000 * Number(payload.exp));
          }
          await rest(10);
        }
      };
      const stopKeys = async (at: number) => {
        while (isRunning) {
          const made = await admin('keys.createKey', { apiId: API_IDS[at % API_IDS.length] });
          keys[at] = made?.key;
          await rest(300 + Math.random() * 700);
          const [operation, fields] =
            Math.random() < 0.7 ? ['keys.updateKey', { enabled: false }] : ['keys.deleteKey', {}];
          const change = { keyId: made?.keyId, ...(fields as object) };
          const answer = made && (await admin(operation as string, change));
          if (answer?.propagation.state === 'complete') kept.stopped(made.keyId, Date.now());
        }
      };
      const work = [
        ...Array.from({ length: ASKERS }, ask),
        ...Array.from({ length: STOPPERS }, (_, at) => stopKeys(at)),
      ];
      await untilOver();
      isRunning = false;
      await Promise.all(work);
    };

    const faults = faultsOf(world).filter((_, kind) => takes(kind));
    const kept = new KeptTokens();
    await collect(kept, async () => {
      // Faults befall keys that have tokens.
      const recovery = (keys = kept.keys) =>
        eventually(() => kept.keys >= keys + STOPPERS / 2, 'no tokens of new keys are issued');
      const endsAtMs = performance.now() + ms;
      await recovery();
      for (let i = 0; performance.now() < endsAtMs || i < faults.length; i++) {
        const undo = await (faults[i % faults.length] as Fault).inject(Math.random);
        await rest(100 + Math.random() * 3400);
        await undo();
        await recovery();
      }
    });
    await controlPlane.stop('SIGTERM');
    controlPlane.root = withMutant(join(directory, 'unwaited'));
    await controlPlane.start();
    const unwaited = new KeptTokens();
    await collect(unwaited, () => eventually(() => unwaited.outlived.size > 0, 'no token is noticed'));
    return { kept, faults: faults.map(({ name }) => name) };
  } finally {
    await agent.destroy();
    for (const end of stop.reverse()) await end();
    rmSync(directory, { recursive: true, force: true });
  }
}

/** Copies the control plane, without what makes its changes wait for tokens. */
function withMutant(root: string): string {
  for (const part of ['control-plane', 'shared', 'package.json'])
    cpSync(join(ROOT, part), join(root, part), { recursive: true });
  symlinkSync(join(ROOT, 'node_modules'), join(root, 'node_modules'));
  const mutant = MUTANTS[UNWAITED];
  if (!mutant) throw new Error(`there is no mutant: ${UNWAITED}`);
  const file = join(ROOT, mutant.file);
  writeFileSync(
    join(root, mutant.file),
    planted(mutant, pathToFileURL(file).href, readFileSync(file, 'utf8')),
  );
  return root;
}

const rest = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
