import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Client } from '../../../control-plane/clients/cli/client.ts';
import { CliError } from '../../../control-plane/clients/cli/exit.ts';
import { OPERATION_KINDS } from '../../../control-plane/clients/client/interface.ts';
import { readDeclared } from '../../../control-plane/clients/declared/files.ts';
import type { Call } from '../../../control-plane/clients/declared/present.ts';
import { bring, compare, type Wish } from '../../../control-plane/clients/declared/run.ts';
import { systemClock } from '../../../shared/process/clock.ts';
import { type Fleet, ROOT_KEY } from '../../harness/fleet.ts';

/** A random source that a seed gives. */
export class Chance {
  #state: number;
  constructor(seed: number) {
    this.#state = (seed * 2654435761) >>> 0;
  }
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let t = this.#state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  }
  below(n: number): number {
    return Math.floor(this.next() * n);
  }
  is(part: number): boolean {
    return this.next() < part;
  }
  of<T>(all: readonly T[]): T {
    return all[this.below(all.length)] as T;
  }
  some<T>(all: readonly T[]): T[] {
    return all.filter(() => this.is(0.5));
  }
}

/** The process ends here, in the middle of a run. */
class Killed extends Error {}

/** How one run is disturbed: at its n-th call, or never. */
export interface Disturbance {
  readonly at: number;
  readonly how: 'killed before' | 'killed after' | 'answer lost' | 'none';
}

type Fields = Readonly<Record<string, unknown>>;
type Doc = Fields & { readonly kind: string };

const APIS = ['a', 'b'];
const ROLES = ['r0', 'r1', 'r2'];
const PERMISSIONS = ['p0', 'p1', 'p2'];
const IDENTITIES = ['i0', 'i1'];
const KEYS = ['k0', 'k1', 'k2', 'k3'];
const HOOKS = ['w0', 'w1'];

/** How a run ended. */
export interface Ended {
  /** True if the run says that it is over and nothing is pending. */
  readonly isFinished: boolean;
  readonly isKilled: boolean;
  /** What the run said was not done. */
  readonly refusals: readonly string[];
}

/**
 * A set of files that a person changes at random, the runs that bring Keyfence to it, and the promises that must hold after each
 * run, with a real control plane, Redis and verifier.
 */
export class DeclaredWorld {
  readonly #fleet: Fleet;
  readonly #chance: Chance;
  readonly #folder: string;
  readonly #set: string;
  readonly #client: Client;
  readonly #seed: number;
  docs: readonly Doc[] = [];
  /** The names of keys that some wish since the last quiet moment had. */
  #wishes: Set<string>[] = [];
  readonly #secrets = new Map<string, string>();

  constructor(fleet: Fleet, seed: number, folder: string) {
    this.#fleet = fleet;
    this.#chance = new Chance(seed);
    this.#seed = seed;
    this.#folder = join(folder, `seed-${seed}`);
    this.#set = `set-${seed}`;
    mkdirSync(this.#folder, { recursive: true });
    this.#client = new Client(new URL(fleet.controlPlanes[0]?.address ?? ''), 'control plane', ROOT_KEY);
  }

  /** A name that no other seed has, where names are of all sets. */
  #own(name: string): string {
    return `${name}-${this.#seed}`;
  }

  /** Draws what files declare next. */
  wish(): void {
    const chance = this.#chance;
    const roles = chance.some(ROLES).map((name) => this.#own(name));
    const apis = chance.some(APIS);
    const keys: Doc[] = (apis.length > 0 ? chance.some(KEYS) : []).map((name) => ({
      kind: 'Key',
      apiId: this.#own(chance.of(apis)),
      name,
      ...(chance.is(0.5) ? { enabled: chance.is(0.5) } : {}),
      ...(chance.is(0.5) ? { roles: chance.some(roles) } : {}),
      ...(chance.is(0.5) ? { permissions: chance.some(PERMISSIONS) } : {}),
      ...(chance.is(0.3) ? { externalId: this.#own(chance.of(IDENTITIES)) } : {}),
      ...(chance.is(0.3) ? { meta: { order: chance.is(0.5) ? ['x', 'y'] : ['y', 'x'] } } : {}),
      secret: { file: `secrets/${name}` },
    }));
    this.docs = [
      ...apis.map((apiId) => ({
        kind: 'Api',
        apiId: this.#own(apiId),
        ...(chance.is(0.3) ? { selfRevocation: chance.is(0.5) } : {}),
      })),
      ...roles.map((name) => ({
        kind: 'Role',
        name,
        ...(chance.is(0.3) ? { description: chance.of(['Some', 'Other']) } : {}),
        ...(chance.is(0.6) ? { permissions: chance.some(PERMISSIONS) } : {}),
        ...(chance.is(0.3)
          ? { ratelimits: [{ name: 'r', limit: 1 + chance.below(9), duration: '1m' }] }
          : {}),
      })),
      ...chance.some(IDENTITIES).map((name) => ({
        kind: 'Identity',
        externalId: this.#own(name),
        ...(chance.is(0.3) ? { meta: { n: chance.below(3) } } : {}),
        ...(chance.is(0.5) ? { roles: chance.some(roles) } : {}),
      })),
      ...chance.some(HOOKS).map((name) => ({
        kind: 'Webhook',
        name: this.#own(name),
        url: `https://hooks.example.com/${chance.below(3)}`,
        ...(chance.is(0.5) ? { enabled: chance.is(0.5) } : {}),
        secret: { file: `secrets/${this.#own(name)}` },
      })),
      ...keys,
    ];
    writeFileSync(
      join(this.#folder, 'all.yaml'),
      this.docs.map((doc) => JSON.stringify(doc)).join('\n---\n') || '# nothing\n',
    );
    this.#wishes.push(new Set(keys.map(({ apiId, name }) => `${apiId}/${name}`)));
  }

  /** Draws how the next run is disturbed. */
  disturbance(): Disturbance {
    const how = this.#chance.of(['killed before', 'killed after', 'answer lost', 'none'] as const);
    return { how, at: 1 + this.#chance.below(30) };
  }

  #call({ at, how }: Disturbance): Call {
    let calls = 0;
    let isDead = false;
    return async <T>(operation: string, input: object = {}): Promise<T> => {
      if (isDead) throw new Killed();
      const isChange = OPERATION_KINDS[operation as keyof typeof OPERATION_KINDS] === 'change';
      const isHere = ++calls === at || (how === 'answer lost' && isChange && calls === at + 1);
      if (isHere && how === 'killed before') isDead = true;
      if (isDead) throw new Killed();
      const answer = await this.#client.call<T>(operation, input);
      if (isHere && how === 'killed after') isDead = true;
      if (isDead) throw new Killed();
      if (isHere && how === 'answer lost' && isChange)
        throw new CliError('UNAVAILABLE', 'the answer was lost; whether the call took effect is unknown');
      return answer;
    };
  }

  /** One run over the files, as `keyfence apply --prune --force --yes` does it. */
  async run(disturbance: Disturbance): Promise<Ended> {
    const call = this.#call(disturbance);
    try {
      const declared = readDeclared([this.#folder]);
      const wish: Wish = { declared, set: this.#set, prune: true, force: true };
      const first = await compare(call, wish);
      const outcome = await bring(call, wish, first, systemClock, async () => undefined);
      const refusals = outcome.failed.map(({ change, error }) => `${change.id}: ${error.message}`);
      const isPending = outcome.propagation.state === 'pending';
      return {
        isFinished: refusals.length === 0 && outcome.remainder === 0 && !isPending,
        isKilled: false,
        refusals,
      };
    } catch (error) {
      if (error instanceof Killed) return { isFinished: false, isKilled: true, refusals: [] };
      if (error instanceof CliError) return { isFinished: false, isKilled: false, refusals: [error.message] };
      throw error;
    }
  }

  /** Notes the secrets that there are, so that a later look asks about all that ever were. */
  #notice(): void {
    const folder = join(this.#folder, 'secrets');
    let names: string[];
    try {
      names = readdirSync(folder);
    } catch {
      return;
    }
    for (const name of names) {
      const text = readFileSync(join(folder, name), 'utf8').trim();
      if (text !== '' && KEYS.includes(name)) this.#secrets.set(text, name);
    }
  }

  /** Asks at once, as a run says that it is over: what no verifier may accept then. */
  async broken(): Promise<string[]> {
    this.#notice();
    const wished = new Map<string, Doc>(
      this.docs.filter(({ kind }) => kind === 'Key').map((doc) => [String(doc['name']), doc]),
    );
    const verdicts = await Promise.all(
      [...this.#secrets].map(async ([secret, name]) => {
        const { body } = await this.#fleet.verifyOnce(secret, {});
        return { name, code: body?.code };
      }),
    );
    return verdicts
      .filter(({ name, code }) => code === 'VALID' && wished.get(name)?.['enabled'] !== true)
      .filter(({ name }) => !wished.has(name) || wished.get(name)?.['enabled'] === false)
      .map(({ name }) => `finished, but a verifier accepts ${name}`);
  }

  /** Compares Keyfence with the files, after a run that says that it is finished. */
  async differences(): Promise<string[]> {
    const faults: string[] = [];
    const declared = readDeclared([this.#folder]);
    const wish: Wish = { declared, set: this.#set, prune: true, force: true };
    const call = this.#call({ at: 0, how: 'none' });
    for (const { id, action, fields } of (await compare(call, wish)).changes)
      faults.push(`finished, but would ${action} ${id} ${JSON.stringify(fields)}`);
    const ofSet = await this.#listed();
    const ids = new Set(
      this.docs.filter(({ kind }) => kind === 'Key').map(({ apiId, name }) => `${apiId}/${name}`),
    );
    for (const { apiId, name } of ofSet)
      if (!ids.has(`${apiId}/${name}`)) faults.push(`finished, but the key ${apiId}/${name} is there`);
    for (const id of ids)
      if (!ofSet.some(({ apiId, name }) => `${apiId}/${name}` === id))
        faults.push(`finished without the key ${id}`);
    for (const { apiId, name, keyId } of ofSet) {
      const secret = readFileSync(join(this.#folder, 'secrets', String(name)), 'utf8').trim();
      const { keyId: of } = await this.#fleet.ok('keys.whoami', { key: secret });
      if (of !== keyId) faults.push(`the secret of ${apiId}/${name} is lost`);
    }
    const { endpoints } = await this.#fleet.ok('webhooks.listEndpoints', { managedBy: this.#set });
    for (const { kind, name, enabled } of this.docs as readonly Fields[]) {
      if (kind !== 'Webhook') continue;
      const there = (endpoints as Fields[]).filter((each) => each['name'] === name);
      if (there.length !== 1) faults.push(`there are ${there.length} webhooks ${String(name)}`);
      if (enabled === false && there[0]?.['enabled'] !== false)
        faults.push(`the webhook ${String(name)} is enabled`);
      const secret = readFileSync(join(this.#folder, 'secrets', String(name)), 'utf8');
      if (!secret.startsWith('whsec_')) faults.push(`the secret of the webhook ${String(name)} is lost`);
    }
    return [...faults, ...this.#leftovers()];
  }

  /** Files that are not secrets of something, and secrets in two files. */
  #leftovers(): string[] {
    const folder = join(this.#folder, 'secrets');
    let names: string[];
    try {
      names = readdirSync(folder).filter((name) => name !== '.gitignore');
    } catch {
      return [];
    }
    const texts = new Map<string, string>();
    return names.flatMap((name) => {
      const text = readFileSync(join(folder, name), 'utf8').trim();
      const twin = texts.get(text);
      texts.set(text, name);
      return [
        ...(twin === undefined ? [] : [`one secret in ${twin} and ${name}`]),
        ...(/\.(\d+|new)$/.test(name) ? [`${name} was left behind`] : []),
      ];
    });
  }

  async #listed(): Promise<{ apiId: string; name: string; keyId: string }[]> {
    const lists = await Promise.all(
      APIS.map(async (api) => {
        const { body, status } = await this.#fleet.admin('apis.listKeys', {
          apiId: this.#own(api),
          managedBy: this.#set,
          limit: 100,
        });
        return status === 200 ? body.keys : [];
      }),
    );
    return lists.flat();
  }

  /** Makes a key by hand where the set has its own, which no run may touch. */
  async byHand(): Promise<string> {
    const { keyId } = await this.#fleet.ok('keys.createKey', { apiId: this.#own('hand'), name: 'by hand' });
    return keyId;
  }

  clean(): void {
    rmSync(this.#folder, { recursive: true, force: true });
  }
}
