import { randomUUID } from 'node:crypto';
import { type Agent, request } from 'undici';
import type { Process } from '../../harness/processes.ts';
import { Account } from './account.ts';
import { ROOT_KEY, VERIFIERS } from './build.ts';
import { API_IDS, type World } from './faults.ts';
import { comeAndGo, giveAndTake, welcome } from './guests.ts';
import type { History, State, WriteRecord } from './history.ts';
import { Meter } from './meter.ts';

const KEYS = 24;
const ROLES = 2;
const OWNERS = 3;
/** The owner whose identity comes and goes, and the names of what comes and goes in the history. */
const GUEST = 'guest';
const GUEST_ROLE = 'role of a guest';
const GUEST_IDENTITY = 'identity of a guest';
/** Share of the questions that are about guests. */
const GUESTS_SHARE = 0.15;
/** More keys of an owner that are made in a run. */
const NEW_KEYS_MAX = 10;
/** Credits that keys begin with: from some that end within moments to more than a run spends. */
const CREDITS = [20, 200, 2000, 200_000] as const;
const SPENDER_REST_MS_MAX = 20;
/** Between two calls of one caller: some 300 verifications and 80 changes a second leave processors to what is tested. */
const READER_REST_MS_MAX = 80;
const WRITER_REST_MS_MAX = 600;
const RECOVERY_MS_MAX = 60_000;
/** Far below what is asked for in a burst, and high enough for slices. */
const LIMITS = [
  { limit: 60, duration: 1000 },
  { limit: 120, duration: 2000 },
  { limit: 30, duration: 1500, async: false },
] as const;
const BURST_CALLERS = 3;
const BURST_REST_MS_MAX = 30;

interface Key {
  readonly keyId: string;
  readonly key: string;
}

/** A key that is asked for, and what its verdict goes by besides. */
interface AskedKey extends Key {
  /** The id of the role that it has, or may be given; undefined = it has none, ever. */
  readonly roleId?: string;
  readonly identityId?: string;
}

/** An owner with an identity. */
interface Owner {
  readonly externalId: string;
  readonly identityId: string;
}

/** The permission that keys with a role are asked for. */
const USE = 'use';
/** Permissions of a role: its version, and what it lets keys do. */
const permissionsOf = (version: number, enabled: boolean): string[] => [
  `version.${version}`,
  ...(enabled ? [USE] : []),
];
/** A key's version is in its meta, that of its role in its permissions, that of its identity in the identity's meta. */
interface Answer {
  readonly code: string;
  readonly meta?: { readonly version: number };
  readonly permissions?: readonly string[];
  readonly identity?: { readonly meta: { readonly version: number } };
}

/**
 * The callers: one writer a key, readers that ask every verifier about every key, spenders of credits, and those that use keys up
 * to their rate limits.
 */
export class Client {
  readonly keys: AskedKey[] = [];
  readonly owners: Owner[] = [];
  readonly roles: { readonly roleId: string; readonly name: string }[] = [];
  /** Keys that nobody changes: one whose role comes and goes, and those whose owner's identity does. */
  readonly guests: AskedKey[] = [];
  readonly accounts: Account[] = [];
  readonly meters: Meter[] = [];
  readonly #world: World;
  readonly #agent: Agent;
  readonly #history: History;
  readonly #random: () => number;
  /** A role that no key has: its changes are complete when those of all roles are. */
  #probeRole = '';

  constructor(world: World, agent: Agent, history: History, random: () => number) {
    this.#world = world;
    this.#agent = agent;
    this.#history = history;
    this.#random = random;
  }

  /** Half of the keys have an owner with an identity, and a role. */
  async createKeys(): Promise<void> {
    while (this.roles.length < ROLES) {
      const name = `role-${this.roles.length}`;
      const made = await this.#admin('permissions.createRole', { name, permissions: permissionsOf(0, true) });
      if (made?.status !== 200) continue;
      const { roleId } = made.body as unknown as { roleId: string };
      this.#history.created(roleId, 'role', { enabled: true });
      this.roles.push({ roleId, name });
    }
    while (!this.#probeRole) {
      const made = await this.#admin('permissions.createRole', { name: 'probe' });
      if (made?.status === 200) this.#probeRole = String(made.body['roleId']);
    }
    while (this.owners.length < OWNERS) {
      const externalId = `owner-${this.owners.length}`;
      // Of the key that is there before the identity nobody has asked yet.
      await this.#admin('keys.createKey', { apiId: API_IDS[0], externalId });
      const made = await this.#admin('identities.createIdentity', { externalId, meta: { version: 0 } });
      if (made?.status !== 200) continue;
      const { identityId } = made.body as unknown as { identityId: string };
      this.#history.created(identityId, 'identity', { enabled: true });
      this.owners.push({ externalId, identityId });
    }
    while (this.keys.length < KEYS) await this.#createKey(this.keys.length);
  }

  async createGuests(): Promise<void> {
    const ofRole = await this.#made({ apiId: API_IDS[1], meta: { version: 0 } });
    this.#history.created(ofRole.keyId, 'key', { enabled: true, hasRole: true });
    this.#history.created(GUEST_ROLE, 'role', { enabled: false, isAbsent: true });
    const ofOwner = await this.#made({ apiId: API_IDS[0], meta: { version: 0 }, externalId: GUEST });
    this.#history.created(ofOwner.keyId, 'key', { enabled: true });
    this.#history.created(GUEST_IDENTITY, 'identity', { enabled: true, isAbsent: true });
    this.guests.push({ ...ofRole, roleId: GUEST_ROLE }, { ...ofOwner, identityId: GUEST_IDENTITY });
  }

  async changeGuests(running: { now: boolean }): Promise<void> {
    const parts = { admin: this.#admin.bind(this), history: this.#history, random: this.#random };
    const [{ keyId } = { keyId: '' }] = this.guests;
    await Promise.all([
      giveAndTake(parts, GUEST_ROLE, keyId, (version) => permissionsOf(version, true), running),
      comeAndGo(parts, GUEST_IDENTITY, GUEST, running),
      welcome(
        parts,
        API_IDS,
        GUEST,
        { add: ({ keyId, key }) => void this.guests.push({ keyId, key, identityId: GUEST_IDENTITY }) },
        running,
      ),
    ]);
  }

  /** A key that is created for certain: the call is sent again until it succeeds. */
  async #made(fields: object): Promise<Key> {
    for (;;) {
      const answer = await this.#admin('keys.createKey', fields);
      if (answer?.status === 200) return answer.body as unknown as Key;
    }
  }

  /** @returns whether it was created */
  async #createKey(
    number: number,
    owner = number % 2 ? this.owners[number % OWNERS] : undefined,
  ): Promise<boolean> {
    const role = owner && this.roles[(number >> 1) % ROLES];
    const answer = await this.#admin('keys.createKey', {
      // Two APIs, so that verifiers follow more than one.
      apiId: API_IDS[(number >> 1) % API_IDS.length],
      meta: { version: 0 },
      ...(owner && role ? { externalId: owner.externalId, roles: [role.name] } : {}),
    });
    if (answer?.status !== 200) return false;
    const { keyId, key } = answer.body as unknown as Key;
    this.#history.created(keyId, 'key', { enabled: true, ...(role ? { hasRole: true } : {}) });
    const ties = owner && role ? { roleId: role.roleId, identityId: owner.identityId } : {};
    this.keys.push({ keyId, key, ...ties });
    return true;
  }

  async createAccounts(): Promise<void> {
    while (this.accounts.length < CREDITS.length) {
      const remaining = CREDITS[this.accounts.length] ?? 0;
      const apiId = API_IDS[this.accounts.length % API_IDS.length];
      const { keyId, key } = await this.#made({ apiId, remaining });
      this.accounts.push(new Account(keyId, key, remaining));
    }
  }

  async createMeters(): Promise<void> {
    while (this.meters.length < LIMITS.length) {
      const ratelimit = LIMITS[this.meters.length % LIMITS.length];
      if (!ratelimit) continue;
      const apiId = API_IDS[this.meters.length % API_IDS.length];
      const { keyId, key } = await this.#made({ apiId, ratelimit });
      this.meters.push(new Meter(keyId, key, ratelimit.limit, ratelimit.duration));
    }
  }

  /**
   * Asks for more than the limit in bursts: after a rest the window before counts for little, so that verifiers have slices where
   * a window ends.
   */
  async use(meter: Meter, running: { now: boolean }): Promise<void> {
    while (running.now) {
      await rest(this.#random() * 1.5 * meter.durationMs);
      const burstEndsMs = performance.now() + this.#random() * 2 * meter.durationMs;
      const callers = Array.from({ length: BURST_CALLERS }, async () => {
        while (running.now && performance.now() < burstEndsMs) await this.#useOnce(meter);
      });
      await Promise.all(callers);
    }
  }

  async #useOnce(meter: Meter): Promise<void> {
    await rest(this.#random() * BURST_REST_MS_MAX);
    const verifier = this.#world.verifiers[Math.floor(this.#random() * VERIFIERS)];
    if (!verifier) return;
    const cost = this.#random() < 0.8 ? 1 : 3;
    const question = { key: meter.key, ratelimits: [{ name: 'default', cost }] };
    const sentMs = Date.now();
    const answer = await this.#post(`${verifier.address}/v1/keys.verifyKey`, question, {});
    const { code } = (answer?.body ?? {}) as { code?: string };
    if (code === 'VALID') meter.accepted({ sentMs, receivedMs: Date.now(), cost });
    else if (code === 'RATE_LIMITED') meter.limited++;
    else await rest(20);
  }

  /** Rotates the key, then gives credits, takes them off, sets them and rotates again, one after the other. */
  async changeCredits(account: Account, running: { now: boolean }): Promise<void> {
    for (let isFirst = true; running.now; isFirst = false) {
      await rest(this.#random() * WRITER_REST_MS_MAX);
      if (isFirst || this.#random() < 0.1) await this.#reroll(account, running);
      const { keyId } = account;
      const op = this.#random() < 0.2 ? 'set' : this.#random() < 0.7 ? 'increment' : 'decrement';
      const value = Math.floor(this.#random() * 50);
      if (op !== 'decrement') account.grant(value);
      const answer = await this.#admin('keys.updateRemaining', { keyId, op, value });
      const { state } = (answer?.body['propagation'] ?? {}) as { state?: string };
      if (answer?.status === 200 && op === 'set' && state === 'complete') account.replaced(value);
    }
  }

  /** Sends the same again until there is an answer, as the caller does who has none. */
  async #reroll(account: Account, running: { now: boolean }): Promise<void> {
    const { keyId } = account;
    const expiration = this.#random() < 0.7 ? 0 : 600_000;
    const operationId = randomUUID();
    while (running.now) {
      const answer = await this.#admin('keys.rerollKey', { keyId, expiration, operationId });
      const {
        keyId: made,
        key,
        propagation,
      } = (answer?.body ?? {}) as Partial<Key> & {
        propagation?: { state: string };
      };
      if (answer?.status === 200 && made && key)
        return account.rerolled(made, key, expiration === 0 && propagation?.state === 'complete');
      await rest(50);
    }
  }

  async spend(running: { now: boolean }): Promise<void> {
    while (running.now) {
      await rest(this.#random() * SPENDER_REST_MS_MAX);
      const account = this.accounts[Math.floor(this.#random() * this.accounts.length)];
      const verifier = this.#world.verifiers[Math.floor(this.#random() * VERIFIERS)];
      if (!account || !verifier) continue;
      const spending = account.begin(1 + Math.floor(this.#random() * 3), this.#random());
      const question = { key: spending.key, remaining: { cost: spending.cost } };
      const answer = await this.#post(`${verifier.address}/v1/keys.verifyKey`, question, {});
      const { code } = (answer?.body ?? {}) as { code?: string };
      if (code === 'VALID') account.accepted(spending, verifier.address);
      else if (code === 'USAGE_EXCEEDED') account.exceeded++;
      else await rest(20);
    }
  }

  async write(key: AskedKey, running: { now: boolean }): Promise<void> {
    while (running.now) {
      await this.#update(key);
      await rest(this.#random() * WRITER_REST_MS_MAX);
    }
  }

  /** Stops a customer and accepts their keys again, while now and then one more key of theirs is made. */
  async stopAndGoOn(owner: Owner, running: { now: boolean }): Promise<void> {
    for (let made = 0; running.now; ) {
      const isMade = made < NEW_KEYS_MAX && this.#random() < 0.2;
      const [isThere] = await Promise.all([
        isMade && this.#createKey(2 * Math.floor(this.#random() * KEYS), owner),
        this.#write(
          owner.identityId,
          { enabled: this.#random() < 0.5 },
          'identities.updateIdentity',
          (write) => ({
            identityId: owner.identityId,
            enabled: write.state.enabled,
            meta: { version: write.version },
          }),
        ),
      ]);
      if (isThere) made++;
      await rest(this.#random() * WRITER_REST_MS_MAX);
    }
  }

  async changeRole({ roleId }: { readonly roleId: string }, running: { now: boolean }): Promise<void> {
    while (running.now) {
      const state = { enabled: this.#random() < 0.6 };
      await this.#write(roleId, state, 'permissions.setRolePermissions', ({ version }) => ({
        ...{ roleId, permissions: permissionsOf(version, state.enabled) },
      }));
      await rest(this.#random() * WRITER_REST_MS_MAX);
    }
  }

  async read(running: { now: boolean }): Promise<void> {
    while (running.now) {
      const keys = this.#random() < GUESTS_SHARE ? this.guests : this.keys;
      const key = keys[Math.floor(this.#random() * keys.length)];
      const verifier = this.#world.verifiers[Math.floor(this.#random() * VERIFIERS)];
      if (key && verifier) await this.#verify(key, verifier);
      await rest(this.#random() * READER_REST_MS_MAX);
    }
  }

  /**
   * Time until every verifier decides again, about a plain key and about one of a customer with a role, and changes of a key and of
   * a role are complete by acks, milliseconds.
   */
  async recovery(): Promise<number> {
    const startedAtMs = performance.now();
    const until = async (isThere: () => Promise<boolean>) => {
      while (!(await isThere())) {
        if (performance.now() - startedAtMs > RECOVERY_MS_MAX)
          throw new Error(`no recovery within ${RECOVERY_MS_MAX} ms`);
        await rest(20);
      }
    };
    for (const key of [this.keys[0], this.keys[1]]) {
      if (!key) throw new Error('there are no keys');
      for (const verifier of this.#world.verifiers) await until(() => this.#verify(key, verifier));
    }
    await until(async () => {
      const probe = await this.#admin('keys.createKey', { apiId: API_IDS[0] });
      const { keyId } = (probe?.status === 200 ? probe.body : {}) as Partial<Key>;
      return keyId !== undefined && this.#byAcks('keys.updateKey', { keyId, enabled: false });
    });
    await until(() => {
      const permissions = [`at.${Math.floor(performance.now())}`];
      return this.#byAcks('permissions.setRolePermissions', { roleId: this.#probeRole, permissions });
    });
    return performance.now() - startedAtMs;
  }

  /** Makes a change, and tells whether it is complete because every verifier acknowledged it. */
  async #byAcks(operation: string, body: object): Promise<boolean> {
    const answer = await this.#admin(operation, body);
    const propagation = answer?.body['propagation'] as { by?: string } | undefined;
    return propagation?.by === 'acks';
  }

  async #update({ keyId, roleId }: AskedKey): Promise<void> {
    const name = this.roles.find((role) => role.roleId === roleId)?.name;
    const hasRole = name === undefined ? undefined : this.#random() < 0.8;
    const state = { enabled: this.#random() < 0.5, ...(hasRole === undefined ? {} : { hasRole }) };
    await this.#write(keyId, state, 'keys.updateKey', ({ version }) => ({
      ...{ keyId, enabled: state.enabled, meta: { version } },
      ...(hasRole === undefined ? {} : { roles: hasRole ? [name] : [] }),
    }));
  }

  async #write(
    id: string,
    state: State,
    operation: string,
    bodyOf: (write: WriteRecord) => object,
  ): Promise<void> {
    const write = this.#history.begin(id, state);
    this.#history.told(id, write, await this.#admin(operation, bodyOf(write)));
  }

  /** Tells whether it decided. */
  async #verify({ keyId, key, roleId, identityId }: AskedKey, verifier: Process): Promise<boolean> {
    const of = (id: string) => ({ id, floor: this.#history.floor(id) });
    const [asked, role, identity] = [of(keyId), roleId && of(roleId), identityId && of(identityId)];
    const question = { key, ...(role ? { authorization: { permissions: USE } } : {}) };
    const answer = await this.#post(`${verifier.address}/v1/keys.verifyKey`, question, {});
    if (answer?.status !== 200) {
      this.#history.counts.refused++;
      if (!answer) await rest(20);
      return false;
    }
    const { code, meta, permissions = [], identity: owner } = answer.body as unknown as Answer;
    const version = meta?.version ?? -1;
    const shown = [{ ...asked, version }];
    if (role && this.#history.stateOf(keyId, version)?.hasRole) {
      const [, said = this.#history.absent(role.id)] =
        permissions.map((each) => each.split('.')).find(([name]) => name === 'version') ?? [];
      shown.push({ ...role, version: Number(said) });
    }
    if (identity)
      shown.push({ ...identity, version: owner?.meta.version ?? this.#history.absent(identity.id) });
    this.#history.answered(shown, code, verifier.address);
    return true;
  }

  #admin(operation: string, body: object) {
    const headers = { authorization: `Bearer ${ROOT_KEY}` };
    return this.#post(`${this.#world.controlPlane.address}/v1/${operation}`, body, headers);
  }

  /** undefined where there was no answer at all. */
  async #post(url: string, body: object, headers: Record<string, string>) {
    try {
      const response = await request(url, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...headers },
        body: JSON.stringify(body),
        dispatcher: this.#agent,
      });
      return { status: response.statusCode, body: (await response.body.json()) as Record<string, unknown> };
    } catch {
      return undefined;
    }
  }
}

const rest = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
